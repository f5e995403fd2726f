"""How many arguments of a function XLA compiles in: each new value costs a compilation.

The others are parameters of the program that XLA makes. To count compilations takes
XLA's log; this takes none, and no time either.
"""

import tensorflow as tf


def number_compiled_in(function, *arguments):
    """How many arguments, nested or not, XLA takes for constants."""
    compiled = tf.function(function, autograph=False, jit_compile=True)
    program = compiled.experimental_get_compiler_ir(*arguments)(stage="hlo")
    # The entry computation comes last.
    entry = program[program.rindex("ENTRY ") :]
    return len(tf.nest.flatten(arguments)) - entry.count(" parameter(")
