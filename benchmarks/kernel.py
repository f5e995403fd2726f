"""Speed and memory of a transition against `tfp.mcmc.NoUTurnSampler`, in one run.

All samplers build full trees of equal size (the step is too small for a U-turn), so a
leapfrog of one is compared with a leapfrog of the other. Runs are interleaved and the
best of several counts, because other load on the machine only ever adds time. In these
runs the density costs almost nothing. At the end, `padded_target` compares the samplers
on a density that costs a millisecond.

    python benchmarks/kernel.py            # about 20 minutes on two cores
    python benchmarks/kernel.py --tiny     # a check that it runs
"""

import argparse
import json
import math
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import padded_target
import scripts
import tensorflow as tf
import tensorflow_probability as tfp

import tfp_lhnn

DIM = 10
# The default `max_tree_depth` of both, with 1023 leapfrogs per draw, and a small one,
# at which the costs of a draw besides its 15 leapfrogs count too. Between them, at 5
# and 6 and with one chain, the cool-down mode took 1.5 to 1.6 times TFP's time: XLA
# runs buffers of up to 512 bytes without its scheduler, and TFP's fit.
DEFAULT_DEPTH, SMALL_DEPTH = 10, 4
FULL_TREES, SHORT_TREES = 1e-3, 1.0  # step sizes


def log_prob(q: tf.Tensor) -> tf.Tensor:
    """Cheap on purpose: what is measured is the sampler."""
    return -0.5 * tf.reduce_sum(q**2, axis=-1)


def make_kernels(
    tree_depth: int, step_size: float = FULL_TREES
) -> dict[str, tfp.mcmc.TransitionKernel]:
    network = tfp_lhnn.LatentHNN(DIM, hidden_units=(16,), seed=1)

    def ours(error_monitor: str, sampling: str) -> tfp.mcmc.TransitionKernel:
        return tfp_lhnn.LatentHNNNoUTurnSampler(
            log_prob,
            network,
            step_size,
            max_tree_depth=tree_depth,
            error_monitor=error_monitor,
            trajectory_sampling=sampling,
        )

    return {
        "tfp": tfp.mcmc.NoUTurnSampler(log_prob, step_size, max_tree_depth=tree_depth),
        "none": ours("none", "slice"),
        "cooldown": ours("cooldown", "slice"),
        "cooldown multinomial": ours("cooldown", "multinomial"),
        "pointwise": ours("pointwise", "slice"),
        "delayed acceptance": tfp_lhnn.LatentHNNDelayedAcceptanceSampler(
            log_prob, network, step_size, max_tree_depth=tree_depth
        ),
    }


def sampler(kernel: tfp.mcmc.TransitionKernel, num_draws: int) -> Callable[..., Any]:
    @tf.function(jit_compile=True, autograph=False)
    def sample(state: tf.Tensor, seed: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        _, leapfrogs, results = tfp.mcmc.sample_chain(
            num_draws,
            state,
            kernel=kernel,
            trace_fn=lambda _, results: results.leapfrogs_taken,
            return_final_kernel_results=True,
            seed=seed,
        )
        return results.target_log_prob, leapfrogs

    return sample


def seconds(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    tf.nest.map_structure(lambda x: x.numpy(), function())
    return time.perf_counter() - start


def measure_speed(
    tree_depth: int, num_chains: int, num_draws: int, repeats: int
) -> dict[str, Any]:
    """Microseconds per leapfrog (of all chains together) and seconds to compile."""
    state, seed = tf.zeros([num_chains, DIM]), tf.constant([1, 2])
    samplers = {
        name: sampler(kernel, num_draws)
        for name, kernel in make_kernels(tree_depth).items()
    }
    first = {name: seconds(lambda s=s: s(state, seed)) for name, s in samplers.items()}
    times: dict[str, list[float]] = {name: [] for name in samplers}
    for _ in range(repeats):
        for name, sample in samplers.items():
            times[name].append(seconds(lambda s=sample: s(state, seed)))
    report = {}
    for name, sample in samplers.items():
        leapfrogs = int(tf.reduce_sum(tf.reduce_max(sample(state, seed)[1], axis=-1)))
        assert leapfrogs == num_draws * (2**tree_depth - 1), "unequal trees"
        best = min(times[name])
        report[name] = {
            "us_per_leapfrog": 1e6 * best / leapfrogs,
            "compile_seconds": first[name] - best,
        }
    return report


def peak_memory(name: str, num_chains: int) -> int:
    """Bytes at the peak of a process that runs `name` and nothing else."""
    command = [sys.executable, __file__, "--memory-of", name, str(num_chains)]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return int(output.split()[-1])


def report_own_peak(name: str, num_chains: int) -> None:
    state = tf.zeros([num_chains, DIM])
    # Allocation depends on the largest tree allowed, so short trees suffice.
    kernel = make_kernels(DEFAULT_DEPTH, SHORT_TREES)[name]
    seconds(lambda: sampler(kernel, 4)(state, tf.constant([1, 2])))
    # Not `ru_maxrss`, which a child process inherits from its parent.
    with open("/proc/self/status") as file:
        (line,) = (line for line in file if line.startswith("VmHWM"))
    print(int(line.split()[1]) * 1024)


def memory_per_chain(name: str, few: int, many: int) -> float:
    return (peak_memory(name, many) - peak_memory(name, few)) / (many - few)


def resident_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def measure_growth(num_draws: int, chunk: int) -> tuple[int, int]:
    """Resident bytes after a tenth of the chunks and after all of them."""
    kernel = make_kernels(SMALL_DEPTH)["cooldown"]
    sample = scripts.compiled_chunk(kernel, chunk, tfp_lhnn.trace_stats)
    state = tf.zeros([4, DIM])
    results = kernel.bootstrap_results(state)
    early = 0
    num_chunks = max(num_draws // chunk, 10)
    for i in range(num_chunks):
        draws, _, results = sample(state, results, tf.constant([i, 5]))
        state = draws[-1]
        if i == num_chunks // 10:
            early = resident_bytes()
    return early, resident_bytes()


def print_speed(tree_depth: int, num_chains: int, report: dict[str, Any]) -> None:
    peer = report["tfp"]
    for name, row in report.items():
        print(
            f"{tree_depth:5d} {num_chains:7d}  {name:22s} "
            f"{row['us_per_leapfrog']:10.1f} us "
            f"{row['us_per_leapfrog'] / peer['us_per_leapfrog']:6.2f}x "
            f"{row['compile_seconds']:8.1f} s "
            f"{row['compile_seconds'] / peer['compile_seconds']:6.2f}x",
            flush=True,
        )


def main() -> None:
    parser = scripts.parser(__doc__)
    parser.add_argument("--chains", type=int, nargs="*", default=[1, 16, 256, 4096])
    parser.add_argument("--json", help="also write the figures to this file")
    parser.add_argument("--memory-of", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    scripts.silence()
    if args.memory_of:
        report_own_peak(args.memory_of[0], int(args.memory_of[1]))
        return

    repeats = 2 if args.tiny else 9
    figures: dict[str, Any] = {"speed": []}
    print("depth  chains  sampler            per leapfrog  ratio   compile  ratio")
    for tree_depth in [3] if args.tiny else (DEFAULT_DEPTH, SMALL_DEPTH):
        for num_chains in [2] if args.tiny else args.chains:
            leapfrogs = 10 if args.tiny else max(1000, 30_000 // num_chains)
            num_draws = math.ceil(leapfrogs / (2**tree_depth - 1))
            report = measure_speed(tree_depth, num_chains, num_draws, repeats)
            print_speed(tree_depth, num_chains, report)
            figures["speed"].append(
                {"depth": tree_depth, "chains": num_chains, "samplers": report}
            )

    if not args.tiny:
        few, many = 1024, 131_072
        figures["bytes_per_chain"] = {
            name: memory_per_chain(name, few, many) for name in ("tfp", "cooldown")
        }
        for name, size in figures["bytes_per_chain"].items():
            print(f"peak memory per chain, {name}: {size:.0f} bytes")

    draws, chunk = (20, 2) if args.tiny else (100_000, 1000)
    early, late = measure_growth(draws, chunk)
    figures["resident_bytes"] = {"early": early, "late": late}
    print(
        f"memory over {draws} draws in chunks of {chunk}: {early / 2**20:.0f} MiB "
        f"after a tenth, {late / 2**20:.0f} MiB at the end"
    )
    rows, sentence = padded_target.measure(
        padded_target.TINY if args.tiny else padded_target.Size()
    )
    print(padded_target.table(rows, sentence))
    figures["padded_target"] = [row._asdict() for row in rows]
    if args.json:
        with open(args.json, "w") as file:
            json.dump(figures, file, indent=2)


if __name__ == "__main__":
    main()
