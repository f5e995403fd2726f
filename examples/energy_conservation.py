"""A trained latent Hamiltonian network conserves energy (the paper's Figure 1a).

Trains on the eight Gaussians, then follows leapfrog trajectories from several starts,
driven once by true gradients and once by the network's, and measures the TRUE energy
along both. Leapfrog itself does not conserve energy exactly; the network is good where
its drift is about the same.

    python examples/energy_conservation.py --output figures
"""

import _common
import numpy as np

import tfp_lhnn


def parse_arguments():
    parser = _common.make_parser(__doc__)
    parser.add_argument("--num-starts", type=int, default=6)
    parser.add_argument("--num-steps", type=int, default=500, help="leapfrog steps")
    parser.add_argument("--step-size", type=float, default=0.1)
    return _common.parse_arguments(parser)


def drift(error):
    """Largest and root-mean-square entry of energy errors, as text."""
    return [f"{np.abs(error).max():.4f}", f"{np.sqrt(np.mean(error**2)):.4f}"]


def print_drift(trajectories):
    errors = [energy - energy[:1] for energy, _ in trajectories.values()]
    energies, positions = trajectories["true gradients"]
    rows = []
    for i, (x, y) in enumerate(positions[0]):
        drifts = [cell for error in errors for cell in drift(error[:, i])]
        rows.append([f"({x:5.2f}, {y:5.2f})", f"{energies[0, i]:.3f}", *drifts])
    rows.append(
        ["all starts", "", *(cell for error in errors for cell in drift(error))]
    )
    header = ["start", "H0", "true max", "true rms", "network max", "network rms"]
    _common.print_table(header, rows)


def draw_figure(args, target, trajectories):
    figure, panels = _common.three_panels()
    _common.plot_energy(panels[0], args.step_size, trajectories)
    panels[0].set_title(f"Energy along {args.num_starts} trajectories")
    for axes, (name, (_, path)), colour in zip(
        panels[1:], trajectories.items(), ("C0", "C1"), strict=True
    ):
        _common.plot_density(axes, target)
        axes.plot(path[..., 0], path[..., 1], colour, lw=0.5)
        axes.plot(*path[0].T, "k.", label="starts")
        axes.set_title(f"Paths: {name}")
        axes.legend(loc="upper right")
    _common.save_figure(figure, args.output, "energy_conservation.png")


def main():
    args = parse_arguments()
    target = tfp_lhnn.targets.eight_gaussians()
    with _common.device_scope(args):
        network, _ = _common.train_on_eight_gaussians(target, args)
        trajectories = _common.compare_energies(
            target, network, args.num_starts, args.step_size, args.num_steps, args
        )
        print(
            f"\n|H - H0| in nats over {args.num_steps} leapfrog steps of "
            f"{args.step_size:g}; H is the true energy in both."
        )
        print_drift(trajectories)
        draw_figure(args, target, trajectories)


if __name__ == "__main__":
    main()
