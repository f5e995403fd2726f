"""Each example, run tiny as a user runs it: a script in a process of its own."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
# Without XLA, whose compilation would be most of the time of so few draws.
TINY = ["--no-jit", "--num-gradients=200", "--num-training-steps=10"]
TINY += ["--hidden-units", "8"]
TINY_CHAINS = ["--num-chains=2", "--num-draws=8", "--num-warmup=5"]


def run_example(name, *arguments):
    return subprocess.run(
        [sys.executable, EXAMPLES / name, *arguments],
        capture_output=True,
        text=True,
        timeout=180,
    )


def table(lines, first):
    """Rows under the header that begins with `first`, split at two or more spaces."""
    header = next(i for i, line in enumerate(lines) if line.strip().startswith(first))
    assert set(lines[header + 1]) == {"-", " "}
    rows = [[cell.strip() for cell in lines[header].split("  ") if cell.strip()]]
    for line in lines[header + 2 :]:
        cells = [cell.strip() for cell in line.split("  ") if cell.strip()]
        if len(cells) < 2:
            break
        rows.append(cells)
    return rows


@pytest.fixture
def run_tiny(tmp_path):
    def run(name, *arguments):
        done = run_example(name, *TINY, *arguments, "--output", tmp_path)
        assert done.returncode == 0, done.stderr
        figure = tmp_path / Path(name).with_suffix(".png")
        assert figure.read_bytes().startswith(b"\x89PNG")
        assert f"Figure: {figure}" in done.stdout
        assert "Trained on 200 gradients" in done.stdout
        return done.stdout.splitlines()

    return run


def test_energy_conservation(run_tiny):
    lines = run_tiny(
        "energy_conservation.py", "--num-starts=2", "--num-steps=5", "--device=CPU:0"
    )
    header, *rows = table(lines, "start")
    assert header[1:] == ["H0", "true max", "true rms", "network max", "network rms"]
    assert len(rows) == 3
    assert rows[-1][0] == "all starts"
    for row in rows:
        largest, rms = float(row[-4]), float(row[-3])
        # Leapfrog of the true energy, over five steps.
        assert 0.0 < rms <= largest < 0.1


@pytest.mark.slow
def test_eight_gaussians(run_tiny):
    lines = run_tiny("eight_gaussians.py", *TINY_CHAINS, "--max-tree-depth=3")
    header, *rows = table(lines, "LHNN-NUTS")
    assert header == ["LHNN-NUTS", "tfp NUTS"]
    cells = {row[0]: row[1:] for row in rows}
    for name in ("ESS per gradient, total", "bias b2", "seconds, compile"):
        assert len(cells[name]) == 2
    assert cells["draws kept, all chains"] == ["16", "16"]
    assert cells["gradients, training"] == ["200", "0"]
    lhnn, nuts = (
        {name: float(row[i]) for name, row in cells.items() if row[i] != "-"}
        for i in range(2)
    )
    for run in (lhnn, nuts):
        total = run["gradients, training"] + run["gradients, sampling"]
        assert run["gradients, total"] == total
        for kind in ("gradients", "densities"):
            assert run[f"{kind}, sampling"] <= run[f"{kind} executed in lockstep"]
    # Each of 2 x 13 draws has a leaf at least, each chain a bootstrap.
    assert nuts["gradients, sampling"] >= 28
    assert nuts["densities, sampling"] == nuts["gradients, sampling"]
    assert lhnn["densities, sampling"] >= 28


@pytest.mark.slow
def test_step_size_adaptation(run_tiny):
    lines = run_tiny("step_size_adaptation.py", *TINY_CHAINS)
    header, *samplers = table(lines, "adapted")
    assert header[1:5] == ["step size", "acceptance", "leapfrogs", "fallbacks"]
    assert header[5:] == ["gradients", "densities", "seconds"]
    assert [row[0] for row in samplers] == [
        "step size",
        "+ transformed",
        "+ mass matrix",
    ]
    header, *posterior = table(lines, "posterior")
    assert header[1:] == ["mean", "error", "true mean", "sd", "true sd", "ESS"]
    assert len(posterior) == 6


@pytest.mark.slow
def test_which_monitor(run_tiny):
    lines = run_tiny(
        "which_monitor.py", "--num-chains=4", "--num-draws=12", "--max-tree-depth=3"
    )
    header, *rows = table(lines, "tfp NUTS")
    assert header == ["tfp NUTS", "cooldown", "pointwise", "none", "delayed"]
    cells = {row[0]: row[1:] for row in rows}
    assert cells["exact"] == ["yes", "no", "yes", "yes", "yes"]
    assert cells["draws, all chains"] == ["48"] * 5
    for name in ("error of the mean radius", "share beyond 5 / truth"):
        assert all("±" in cell for cell in cells[name])
    counts = {
        name: [int(cell) for cell in cells[name]]
        for name in cells
        if name.startswith(("gradients", "densities"))
    }
    sampling = counts["gradients, sampling"]
    training = np.subtract(counts["gradients, with training"], sampling)
    assert list(training) == [0, 200, 200, 200, 200]
    for kind in ("gradients, sampling", "densities"):
        executed = counts[f"{kind.split(',')[0]} executed in lockstep"]
        assert np.all(np.less_equal(counts[kind], executed))
    assert sampling[3] == 0
    # Delayed acceptance: a density per draw and chain and one at the start, beside
    # those of true transitions, which come with gradients.
    assert counts["densities"][4] >= 52
    assert counts["densities"][4] <= 52 + sampling[4]


def run_small(name, *arguments):
    done = run_example(name, "--draws=30", "--gradient-budget=500", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_joint_distribution(tmp_path):
    output = run_small("joint_distribution.py", f"--output={tmp_path}")
    for name in ("mu", "tau", "z[7]", "target gradients"):
        assert name in output
    assert f"Report: {tmp_path / 'eight_schools.html'}" in output
    assert "Eight schools" in (tmp_path / "eight_schools.html").read_text()


@pytest.mark.slow
def test_logistic_regression(tmp_path):
    output = run_small("logistic_regression.py", "--rows=500", f"--output={tmp_path}")
    assert "of 25" in output
    assert (tmp_path / "logistic_regression.html").is_file()


@pytest.mark.slow
def test_resume(tmp_path):
    first = run_small("resume.py", f"--checkpoint={tmp_path / 'run'}")
    assert list((tmp_path / "run").glob("chunk_*.npz"))
    # Everything is there already, so the second run only reads it.
    assert run_small("resume.py", f"--checkpoint={tmp_path / 'run'}") == first


@pytest.mark.slow
def test_quickstart():
    done = run_example("quickstart.py")
    assert done.returncode == 0, done.stderr
    mean = float(done.stdout.split("mean of y:")[1].split()[0])
    # The standard error is 1.22/sqrt(2700) = 0.024.
    assert abs(mean - 0.5) < 0.1


def test_a_device_that_is_not_there_is_refused_by_name():
    done = run_example("energy_conservation.py", "--device=GPU:77")
    assert done.returncode == 2
    assert "no device 'GPU:77'; TensorFlow sees CPU:0" in done.stderr
    assert "Traceback" not in done.stderr
