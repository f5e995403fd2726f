"""What the scripts of this folder share: options, chunks of draws, pages.

They run by themselves, `python benchmarks/NAME.py`, and import this file by its bare
name.
"""

import argparse
import pathlib
import warnings
from collections.abc import Callable
from typing import Any

import tensorflow as tf
import tensorflow_probability as tfp

__all__ = ["ALGORITHM_PAGE", "compiled_chunk", "insert", "parser", "silence"]

ALGORITHM_PAGE = pathlib.Path(__file__).parent.parent / "docs" / "algorithm.md"


def parser(description: str | None) -> argparse.ArgumentParser:
    """A parser with `--tiny`, and the first line of a script's docstring."""
    made = argparse.ArgumentParser(description=(description or "").split("\n")[0])
    made.add_argument("--tiny", action="store_true", help="only check that it runs")
    return made


def silence() -> None:
    """Silences warnings that every script would give."""
    warnings.filterwarnings("ignore", "supplied `TransitionKernel` is not calibrated")
    # TensorFlow takes different samplers for one function that is retraced, and warns.
    tf.get_logger().setLevel("ERROR")


def compiled_chunk(
    kernel: tfp.mcmc.TransitionKernel,
    num_draws: int,
    trace_fn: Callable[[Any, Any], Any],
) -> Callable[[tf.Tensor, Any, tf.Tensor], Any]:
    """A function of state, results and seed that continues chains, compiled once.

    Args:
        kernel: what to run.
        num_draws: of each call.
        trace_fn: of state and results, as `tfp.mcmc.sample_chain` has it.

    Returns:
        The function; it returns draws, trace, and the results to continue from.
    """

    @tf.function(jit_compile=True, autograph=False)
    def advance(state: tf.Tensor, results: Any, seed: tf.Tensor) -> Any:
        return tfp.mcmc.sample_chain(
            num_draws,
            state,
            kernel=kernel,
            previous_kernel_results=results,
            return_final_kernel_results=True,
            trace_fn=trace_fn,
            seed=seed,
        )

    return advance


def insert(text: str, markers: tuple[str, str], path: pathlib.Path) -> None:
    """Replaces the text between two markers of a page."""
    page = path.read_text()
    begin, end = (page.index(marker) for marker in markers)
    path.write_text(page[: begin + len(markers[0])] + f"\n{text}\n" + page[end:])
