"""The steps of a schedule in words: a sentence for each of TVM's primitives."""

from __future__ import annotations

from .algorithms import has_algorithm

PRIMITIVES: dict[str, str] = {
    # What is looked up; nothing changes.
    "get_sblock": "Find a block by its name.",
    "get_loops": "List the loops around a block, the outermost first.",
    "get_child_blocks": "List the blocks inside a block or loop.",
    "get_producers": "List the blocks that write what a block reads.",
    "get_consumers": "List the blocks that read what a block writes.",
    "get_output_blocks": "List the blocks that write the outputs.",
    # What a search has drawn.
    "sample_perfect_tile": "Choose extents with the loop's as product; `decision` is what was chosen.",
    "sample_partitioned_tile": "Choose extents in two groups, with the loop's as product; see `decision`.",
    "sample_categorical": "Choose one of the candidates; `decision` is the position of the one chosen.",
    "sample_compute_location": "Choose the loop to compute a block at; `decision` is its position.",
    # Loops.
    "split": "Cut a loop into nested loops, the outermost first; None stands for the extent that is left.",
    "loop_partition": "Cut a loop's range into consecutive parts, each a loop of its own.",
    "fuse": "Make one loop of nested ones: it runs through all their combinations.",
    "merge": "Make one loop of loops of equal extent that follow each other.",
    "reorder": "Put loops into this order, the outermost first; what is computed stays the same.",
    "add_unit_loop": "Put a loop of one iteration around a block or loop.",
    "parallel": "Share the loop's iterations among the threads.",
    "vectorize": "Do the loop's iterations at once, in the lanes of vector instructions.",
    "unroll": "Write the loop's iterations one after another: no counter, no jump.",
    "bind": "Give each iteration of the loop to a thread or block of threads of the GPU.",
    # Where a block is computed.
    "compute_at": "Move a block into a loop of its reader, which computes what one iteration reads.",
    "reverse_compute_at": "Move a block into a loop of its writer: what is written is used at once.",
    "compute_inline": "Compute a block's values where they are read; its buffer goes away.",
    "reverse_compute_inline": "Compute a block where its input is written; the buffer between goes away.",
    "fuse_reduction_epilogue": "Let a sum start from what a later block would add to it.",
    # Copies that are faster to read or write.
    "cache_read": "Copy what a block reads into a buffer of its own, laid out anew or kept closer.",
    "cache_write": "Let a block write into a buffer of its own, which is copied afterwards.",
    "cache_inplace": "Read and write a buffer through a copy.",
    "cache_index": "Compute indices once and keep them in a buffer.",
    "reindex": "Copy what a block reads or writes into a buffer in the order in which the block uses it.",
    "reindex_cache_read": "Copy what a block reads into a buffer whose indices are given.",
    "reindex_cache_write": "Let a block write into a buffer whose indices are given, copied afterwards.",
    "read_at": "Copy what a loop's iteration reads into a buffer close by.",
    "write_at": "Collect what a loop's iteration writes in a buffer close by.",
    "rolling_buffer": "Keep of a buffer only the part that the next iterations still read.",
    "set_scope": 'Say where a buffer lives: "global" is memory, the stack for small ones, "local" the heap.',
    "storage_align": "Pad a dimension of a buffer, so that its rows start at other addresses.",
    # Layouts and shapes.
    "transform_layout": "Store a buffer in another order of its elements, and change every access to it.",
    "transform_block_layout": "Let a block run through its iterations in another order, with loops to match.",
    "reorder_block_iter_var": "Put a block's axes into another order.",
    "pad_einsum": "Pad the extents of a contraction to multiples.",
    "decompose_padding": "Fill a padded buffer first and copy the inner part after, without conditions.",
    # Sums.
    "decompose_reduction": "Set the sum to its start value in loops of their own, before the loop named.",
    "rfactor": "Sum in parts that are independent of each other, and sum the parts afterwards.",
    # Instructions of the hardware.
    "blockize": "Make one block of loops and the block in them, as a unit for what follows.",
    "tensorize": "Do the computation in the loop by the named instruction of the hardware.",
    # Notes.
    "annotate": "Attach a note for later passes: its name and value.",
    "unannotate": "Remove a note.",
    "annotate_buffer_access": "State which part of a buffer a block reads or writes.",
    "enter_postproc": "From here on: steps of MetaSchedule's own, after the choices were made.",
    "unsafe_hide_buffer_access": "Leave accesses out of what a block states to read or write.",
    "unsafe_set_dtype": "Change the element type of a buffer.",
}
"""A sentence for each primitive, by its name on `tvm.s_tir.Schedule`."""

FORM = "Begin with another algorithm for the same result: its name and numbers."
"""The sentence for the note that a schedule begins so."""

UNKNOWN = "A step that has no explanation here: see TVM's documentation of its name."


def in_words(step: str) -> str:
    """Return the sentence for a step in Python, such as ``sch.parallel(loop=l1)``."""
    name = step.partition("sch.")[2].partition("(")[0]
    return FORM if has_algorithm(step) else PRIMITIVES.get(name, UNKNOWN)
