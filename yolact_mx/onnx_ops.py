"""MXNet operators as nodes of ONNX opset 16: a function for each, all in ``CONVERTERS``.

A converter is called as ``f(g, *inputs, **attributes)``: ``inputs`` are names of ONNX values, the
attributes are those of the MXNet node, with MXNet's defaults.  What is not in its signature, and
what it raises :class:`Untranslatable` for, is refused.  It returns the name of its output, or a
list of names.  ``g`` has ``add(op_type, inputs, outputs=1, **attributes)`` -> name(s),
``constant(value)`` -> name, ``shape`` of the node's (first) output, ``shapes`` and ``dtypes`` of
its inputs; a dimension that grows with the batch is None.
"""

import numpy as np

_END = np.iinfo(np.int64).max
# onnx.TensorProto.DataType
_TYPES = {"float32": 1, "int32": 6, "int64": 7, "bool": 9}


class Untranslatable(Exception):
    """What an operator asks for and this file has no ONNX for."""


def _only(holds, text, *values):
    if not holds:
        raise Untranslatable(text.format(*values))


def _cast(g, value, dtype):
    return g.add("Cast", [value], to=_TYPES[dtype])


def _ints(g, *values):
    return g.constant(np.array(values, np.int64))


def _unary(op):
    return lambda g, x: g.add(op, [x])


def _binary(op, compares=False):
    def convert(g, a, b):
        result = g.add(op, [a, b])
        return _cast(g, result, "float32") if compares else result

    return convert


def _scalar(op, compares=False, reverse=False):
    def convert(g, x, scalar, is_int=True):
        number = g.constant(np.array(scalar, g.dtypes[0]))
        result = g.add(op, [number, x] if reverse else [x, number])
        return _cast(g, result, "float32") if compares else result

    return convert


def _filled(value):
    def convert(g, x):
        return g.add("Expand", [g.constant(np.array(value, g.dtypes[0])), g.add("Shape", [x])])

    return convert


def _convolution(g, x, weight, bias=None, *, kernel, num_filter, stride=(1, 1), pad=(0, 0),
                 dilate=(1, 1), num_group=1, no_bias=False, layout="NCHW"):
    return g.add("Conv", [x, weight] + ([] if no_bias else [bias]), kernel_shape=kernel,
                 strides=stride, pads=pad + pad, dilations=dilate, group=num_group)


def _batch_norm(g, x, gamma, beta, mean, variance, *, eps, axis=1, fix_gamma=True, momentum=None,
                use_global_stats=None):
    _only(axis == 1 and not fix_gamma, "axis={}, fix_gamma={}", axis, fix_gamma)
    return g.add("BatchNormalization", [x, gamma, beta, mean, variance], epsilon=eps)


def _pooling(g, x, *, pool_type, kernel, stride=(1, 1), pad=(0, 0), global_pool=False,
             pooling_convention="valid", layout="NCHW"):
    _only(pool_type == "max", "pool_type={}", pool_type)
    if global_pool:
        return g.add("GlobalMaxPool", [x])
    _only(pooling_convention == "valid", "pooling_convention={}", pooling_convention)
    return g.add("MaxPool", [x], kernel_shape=kernel, strides=stride, pads=pad + pad)


def _activation(g, x, *, act_type):
    _only(act_type in ("relu", "sigmoid", "tanh"), "act_type={}", act_type)
    return g.add(act_type.capitalize(), [x])


def _leaky_relu(g, x, *, act_type="leaky", slope=0.25):
    _only(act_type == "leaky", "act_type={}", act_type)
    return g.add("LeakyRelu", [x], alpha=slope)


def _clip(g, x, *, a_min, a_max):
    return g.add("Clip", [x, g.constant(np.float32(a_min)), g.constant(np.float32(a_max))])


def _resize(g, x, like=None, *, align_corners=True, mode=None, scale_height=None,
            scale_width=None):
    _only(not align_corners, "align_corners=True")
    leading = g.add("Slice", [g.add("Shape", [x]), _ints(g, 0), _ints(g, 2)])
    sizes = g.add("Concat", [leading, _ints(g, *g.shape[2:])], axis=0)
    return g.add("Resize", [x, "", "", sizes], mode="linear",
                 coordinate_transformation_mode="half_pixel")


def _pad(g, x, *, mode, pad_width, constant_value=0):
    _only(mode == "constant", "mode={}", mode)
    pads = _ints(g, *(pad_width[::2] + pad_width[1::2]))  # all beginnings, then all ends
    return g.add("Pad", [x, pads, g.constant(np.float32(constant_value))])


def _bilinear_sampler(g, x, grid):
    """Both count -1..1 from the centre of the first pixel to that of the last."""
    grid = g.add("Transpose", [grid], perm=(0, 2, 3, 1))
    return g.add("GridSample", [x, grid], mode="bilinear", padding_mode="zeros", align_corners=1)


def _reshaped(g, x, like=None, **_):
    """Every operator that only changes the shape: MXNet has worked the new one out."""
    _only(g.shape.count(None) <= 1, "two dimensions that grow with the batch")
    return g.add("Reshape", [x, _ints(g, *(-1 if n is None else n for n in g.shape))])


def _transpose(g, x, *, axes):
    return g.add("Transpose", [x], perm=axes)


def _slice(g, x, *, begin, end, step=()):
    _only(not step, "step={}", step)
    bounds = [(axis, a or 0, _END if b is None else b)
              for axis, (a, b) in enumerate(zip(begin, end)) if (a, b) != (None, None)]
    axes, starts, ends = (_ints(g, *column) for column in zip(*bounds))
    return g.add("Slice", [x, starts, ends, axes])


def _slice_axis(g, x, *, axis, begin, end=None):
    return g.add("Slice", [x, _ints(g, begin), _ints(g, _END if end is None else end),
                           _ints(g, axis)])


def _reverse(g, x, *, axis):
    return g.add("Slice", [x, _ints(g, -1), _ints(g, -_END), _ints(g, axis), _ints(g, -1)])


def _concat(g, *inputs, dim=1, num_args=None):
    return g.add("Concat", inputs, axis=dim)


def _stack(g, *inputs, axis=0, num_args=None):
    return g.add("Concat", [g.add("Unsqueeze", [x, _ints(g, axis)]) for x in inputs], axis=axis)


def _broadcast_like(g, x, like):
    return g.add("Expand", [x, g.add("Shape", [like])])


def _arange_like(g, x, *, axis):
    length = g.shapes[0][axis]
    if length is not None:
        return g.constant(np.arange(length, dtype=g.dtypes[0]))
    length = g.add("Gather", [g.add("Shape", [x]), g.constant(np.int64(axis))])
    count = g.add("Range", [g.constant(np.int64(0)), length, g.constant(np.int64(1))])
    return _cast(g, count, np.dtype(g.dtypes[0]).name)


def _cast_to(g, x, *, dtype):
    return _cast(g, x, dtype)


def _where(g, condition, a, b):
    return g.add("Where", [_cast(g, condition, "bool"), a, b])


def _softmax(g, x, *, axis=-1):
    return g.add("Softmax", [x], axis=axis)


def _max(g, x, *, axis=None, keepdims=False):
    # Of a NaN MXNet's maximum is NaN, but ONNX Runtime's anything: infinity fails `<=` as well
    x = g.add("Where", [g.add("IsNaN", [x]), g.constant(np.float32(np.inf)), x])
    if axis is None:
        return _reshaped(g, g.add("ReduceMax", [x], keepdims=0))
    axes = axis if isinstance(axis, tuple) else (axis,)
    return g.add("ReduceMax", [x], axes=axes, keepdims=int(keepdims))


def _argmax(g, x, *, axis, keepdims=False):
    return _cast(g, g.add("ArgMax", [x], axis=axis, keepdims=int(keepdims)), "float32")


def _topk(g, x, *, k, axis=-1, ret_typ="indices", dtype="float32"):
    _only(ret_typ == "both", "ret_typ={}", ret_typ)
    values, indices = g.add("TopK", [x, _ints(g, k)], outputs=2, axis=axis)
    return [values, _cast(g, indices, dtype)]


def _gather_nd(g, data, indices):
    rank = len(g.shapes[1])
    indices = g.add("Transpose", [_cast(g, indices, "int64")], perm=(*range(1, rank), 0))
    return g.add("GatherND", [data, indices])


def _pick(g, data, index, *, axis=-1):
    last = _ints(g, axis)
    index = g.add("Unsqueeze", [_cast(g, index, "int64"), last])
    return g.add("Squeeze", [g.add("GatherElements", [data, index], axis=axis), last])


def _box_nms(g, rows, *, overlap_thresh, valid_thresh, coord_start, score_index, id_index):
    """Rows (B, K, columns), suppressed ones all -1; they keep their places, unlike MXNet's."""
    def column(i, count=1):
        return g.add("Slice", [rows, _ints(g, i), _ints(g, i + count), _ints(g, 2)])

    scores, ids = (g.add("Transpose", [column(i)], perm=(0, 2, 1)) for i in (score_index, id_index))
    number = g.add("Add", [g.add("ReduceMax", [ids], keepdims=0), g.constant(np.float32(1))])
    classes = g.add("Range", [g.constant(np.float32(0)), number, g.constant(np.float32(1))])
    own = g.add("Equal", [ids, g.add("Reshape", [classes, _ints(g, 1, -1, 1)])])
    scores = g.add("Where", [own, scores, g.constant(np.float32(-1))])  # (B, classes, K)
    found = g.add("NonMaxSuppression", [
        column(coord_start, 4), scores, _ints(g, g.shape[1]),
        g.constant(np.array([overlap_thresh], np.float32)),
        g.constant(np.array([valid_thresh], np.float32)),
    ])  # (found, 3): image, class, row
    places = g.add("Gather", [found, _ints(g, 0, 2)], axis=1)
    nothing = g.add("Mul", [column(score_index), g.constant(np.float32(0))])  # (B, K, 1)
    ones = g.add("Expand", [g.constant(np.float32(1)), g.add("Concat", [
        g.add("Slice", [g.add("Shape", [found]), _ints(g, 0), _ints(g, 1)]), _ints(g, 1)], axis=0)])
    kept = _cast(g, g.add("ScatterND", [nothing, places, ones]), "bool")
    return g.add("Where", [kept, rows, g.constant(np.float32(-1))])


CONVERTERS = {
    "exp": _unary("Exp"), "floor": _unary("Floor"), "relu": _unary("Relu"),
    "sigmoid": _unary("Sigmoid"), "_copy": _unary("Identity"), "BlockGrad": _unary("Identity"),
    "elemwise_add": _binary("Add"), "broadcast_add": _binary("Add"),
    "elemwise_sub": _binary("Sub"), "broadcast_sub": _binary("Sub"),
    "elemwise_mul": _binary("Mul"), "broadcast_mul": _binary("Mul"),
    "elemwise_div": _binary("Div"), "broadcast_div": _binary("Div"),
    "broadcast_minimum": _binary("Min"), "broadcast_maximum": _binary("Max"),
    "batch_dot": _binary("MatMul"),
    "broadcast_lesser": _binary("Less", compares=True),
    "broadcast_greater_equal": _binary("GreaterOrEqual", compares=True),
    "_plus_scalar": _scalar("Add"), "_minus_scalar": _scalar("Sub"),
    "_rminus_scalar": _scalar("Sub", reverse=True), "_mul_scalar": _scalar("Mul"),
    "_div_scalar": _scalar("Div"), "_mod_scalar": _scalar("Mod"),
    "_greater_scalar": _scalar("Greater", compares=True),
    "_greater_equal_scalar": _scalar("GreaterOrEqual", compares=True),
    "_lesser_equal_scalar": _scalar("LessOrEqual", compares=True),
    "ones_like": _filled(1), "zeros_like": _filled(0),
    "Reshape": _reshaped, "reshape_like": _reshaped, "expand_dims": _reshaped, "squeeze": _reshaped,
    "Flatten": _reshaped,
    "Convolution": _convolution, "BatchNorm": _batch_norm, "Pooling": _pooling,
    "Activation": _activation, "LeakyReLU": _leaky_relu, "clip": _clip, "softmax": _softmax,
    "Pad": _pad, "BilinearSampler": _bilinear_sampler, "_contrib_BilinearResize2D": _resize,
    "transpose": _transpose, "slice": _slice, "slice_axis": _slice_axis, "reverse": _reverse,
    "Concat": _concat, "stack": _stack, "broadcast_like": _broadcast_like,
    "_contrib_arange_like": _arange_like, "Cast": _cast_to, "where": _where, "max": _max,
    "argmax": _argmax, "topk": _topk, "gather_nd": _gather_nd, "pick": _pick,
    "_contrib_box_nms": _box_nms,
}
