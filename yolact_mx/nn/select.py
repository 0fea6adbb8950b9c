"""Selection whose result keeps the original order: unsorted top-k and masked rows.

MXNet's ``topk`` returns its elements sorted by value, so the k-th output no longer says
where it came from.  The functions here therefore lift *positions*, not values, out of the
crowd: an element of level l at position n gets the integer key ``_GAP * l - n``.  Sorted
keys of one level are ascending positions, and the position is read back from the key
without loss.  The elements themselves are gathered from the untouched input, so values and
gradients are those of plain indexing, bit for bit, in every dtype.

Only ``F`` operators are used; none of them creates an array without an input (AMP refuses
that in a hybridized graph) and none needs a shape as a number.
"""
import mxnet as mx

# Longest axis whose keys of the levels 1 and 2 stay positive and fit an int32.
_GAP = 2 ** 30 - 1


def unsorted_topk(F, data, k, axis=-1, ret_typ="value"):
    """The k largest elements along an axis, in their original order.

    Of equal elements the first ones are taken.  ``value`` is differentiable, its gradient
    reaches exactly the chosen elements; indices and mask are constants.

    Parameters
    ----------
    F : module
        ``mx.nd`` or ``mx.sym``.
    data : NDArray or Symbol, any number of dimensions, float16, float32 or float64
        Must hold no NaN (a NaN has no rank).
    k : int
        Number of elements, 1 <= k <= length of the axis.
    axis : int
        Axis along which to choose, at most 2**30 - 1 long.
    ret_typ : {'value', 'indices', 'both', 'mask'}
        ``value``: (..., k, ...) elements, dtype of `data`.  ``indices``: (..., k, ...) int32,
        ascending along the axis.  ``both``: the pair (value, indices).  ``mask``: shape and
        dtype of `data`, 1 where chosen and 0 elsewhere.

    Raises
    ------
    ValueError
        If k < 1, `ret_typ` is unknown or, called imperatively, k exceeds the axis or the
        axis is too long.  A graph whose k exceeds the axis raises ``MXNetError`` when its
        shapes are inferred.
    """
    if ret_typ not in ("value", "indices", "both", "mask"):
        raise ValueError("unsorted_topk: ret_typ must be value, indices, both or mask, "
                         "found {!r}".format(ret_typ))
    check_k("unsorted_topk", k)
    if F is mx.nd:
        _check_axis("unsorted_topk", data, axis, k)
    x = _swap_to_last(F, data, axis)                                        # (..., n)
    kth = F.slice_axis(F.topk(x, k=k, ret_typ="value"), axis=-1, begin=k - 1, end=k)
    # Level 2 above the k-th largest value, 1 at it, 0 below: the k largest keys are those
    # above and then the first of the equal ones.  (topk breaks ties arbitrarily.)
    level = F.broadcast_greater_equal(x, kth) + F.broadcast_greater(x, kth)
    keys = _position_keys(F, F.cast(level, dtype="int32"))                  # (..., n) int32
    top = F.BlockGrad(F.topk(keys, k=k, ret_typ="value"))                   # (..., k)
    if ret_typ == "mask":
        chosen = F.broadcast_greater_equal(keys, F.slice_axis(top, axis=-1, begin=k - 1, end=k))
        # float32, because AMP casts the branches of where to the type of an int condition
        chosen = F.cast(chosen, dtype="float32")
        return _swap_to_last(F, F.where(chosen, F.ones_like(x), F.zeros_like(x)), axis)
    positions = F.sort(_GAP + _GAP * (top > _GAP) - top, axis=-1)           # (..., k) ascending
    indices = _swap_to_last(F, positions, axis)
    if ret_typ == "indices":
        return indices
    value = gather_rows(F, _merge_leading(F, x), _merge_leading(F, positions))  # (rows, k)
    value = _swap_to_last(F, F.reshape_like(value, positions), axis)
    return value if ret_typ == "value" else (value, indices)


def select_positives(F, indicator, *tensors, k, random=True):
    """The rows that an indicator marks, from any number of tensors, rows corresponding.

    ``B[A == 1]`` for a static graph: the result always has k rows per image, in ascending
    order of the anchors.  With fewer than k marked rows the rest is zero and has weight 0.
    With more, a random subset drawn in the graph is taken (or the first k); scale a loss by
    ``sum(indicator) / sum(valid)`` to make up for it.

    Parameters
    ----------
    F : module
        ``mx.nd`` or ``mx.sym``.
    indicator : NDArray or Symbol, (B, N), any dtype
        A positive number marks a row, 0 or a negative number does not.  N may be smaller than
        k; N + k at most 2**30 - 1.
    tensors : NDArrays or Symbols, (B, N, ...)
        Sources, each of its own rank (>= 2) and dtype.
    k : int
        Rows per image in the result, >= 1.
    random : bool
        Which k to take of more: a uniformly random subset (True) or the first ones (False).

    Returns
    -------
    tuple
        ``(valid, index, *selected)``: valid (B, k) float32, 1 for a selected row and 0 for
        padding, which comes last; index (B, k) int32, the anchor of the row, 0 in padding;
        selected (B, k, ...) of each tensor, its dtype, zero in padding.

    Raises
    ------
    ValueError
        If k < 1 or, called imperatively, if a tensor does not begin with (B, N).
    """
    check_k("select_positives", k)
    if F is mx.nd:
        _check_leading_shape(indicator, tensors)
    marked = F.cast(indicator, dtype="float32") > 0                         # (B, N)
    nothing = F.zeros_like(F.slice_axis(marked, axis=1, begin=0, end=1))
    # k unmarked anchors at the end, so that topk finds k elements even where N < k.
    marked = F.concat(marked, F.broadcast_axis(nothing, axis=1, size=k), dim=1)
    keys = F.BlockGrad((_random_keys if random else _first_keys)(F, marked, k))
    filled = keys > 0                                                       # (B, k)
    index = (_GAP - keys) * filled
    valid = F.cast(filled, dtype="float32")
    # The padding comes last, so a length per image tells it apart.  Masking by length also
    # keeps a non-finite row 0 out of the padding; multiplying by 0 would not.
    count = F.sum(valid, axis=1)
    selected = (F.SequenceMask(gather_rows(F, tensor, index), count, axis=1,
                               use_sequence_length=True) for tensor in tensors)
    return (valid, index) + tuple(selected)


def gap_shift_topk(F, indicator, data, k):
    """The gap shift exactly as first written down; a reference, not for use.

    Every selected *value* is lifted above all others by ``gap = max - min + 1``, the k
    largest are taken in their order, the gap is subtracted again.  The rounding of
    ``(b + gap) - gap`` stays in the result, and it is right only if each row of `indicator`
    holds exactly k ones.

    Parameters
    ----------
    F : module
        ``mx.nd`` or ``mx.sym``.
    indicator : NDArray or Symbol, (B, N), dtype of `data`
        Exactly k ones per row, zeros elsewhere.
    data : NDArray or Symbol, (B, N, C)
    k : int

    Returns
    -------
    NDArray or Symbol, (B, k, C)
        The marked rows, up to rounding.
    """
    gap = F.BlockGrad(F.max(data) - F.min(data) + 1)                        # (1,)
    lift = F.broadcast_mul(F.expand_dims(indicator, axis=2), gap)           # (B, N, 1)
    return F.broadcast_sub(unsorted_topk(F, F.broadcast_add(data, lift), k, axis=1), gap)


def _position_keys(F, level):
    """level (..., n) int32 -> keys that order by falling level, then by rising position."""
    return F.broadcast_sub(_GAP * level, F.contrib.arange_like(level, axis=-1))


def _first_keys(F, marked, k):
    """Position keys (B, k) of the first k marked anchors; keys of padding are not positive."""
    return F.topk(_position_keys(F, F.cast(marked, dtype="int32")), k=k, ret_typ="value")


def _random_keys(F, marked, k):
    """Position keys (B, k) of a random k of the marked anchors; keys of padding are 0."""
    chance = marked * (1 + F.random.uniform_like(marked))                   # 0 or in [1, 2)
    chance, anchor = F.topk(chance, k=k, ret_typ="both", dtype="int32")
    filled = F.cast(chance > 0, dtype="int32")
    return F.sort(filled * (_GAP - anchor), axis=-1, is_ascend=False)


def gather_rows(F, data, index):
    """data (B, N, ...), index (B, k) int32 -> data[b, index[b, j]], (B, k, ...)."""
    image = F.broadcast_like(F.expand_dims(F.contrib.arange_like(index, axis=0), axis=1), index)
    return F.gather_nd(data, F.stack(image, index, axis=0))


def _merge_leading(F, x):
    return F.reshape(x, shape=(-1, 0), reverse=True)                        # (..., n) -> (r, n)


def _swap_to_last(F, x, axis):
    return x if axis == -1 else F.swapaxes(x, axis, -1)


def check_k(name, k):
    """Raise ``ValueError`` unless k >= 1 (MXNet's ``topk`` takes k < 1 for "all")."""
    if k < 1:
        raise ValueError("{}: k must be at least 1, found {}".format(name, k))


def _check_axis(name, data, axis, k):
    length = data.shape[axis]
    if not k <= length <= _GAP:
        raise ValueError("{}: axis {} of shape {} must be at least k = {} and at most {} long"
                         .format(name, axis, data.shape, k, _GAP))


def _check_leading_shape(indicator, tensors):
    for number, tensor in enumerate(tensors):
        if tensor.shape[:2] != indicator.shape:
            raise ValueError("select_positives: tensor {} must begin with the indicator's shape "
                             "{}, found shape {}".format(number, indicator.shape, tensor.shape))
