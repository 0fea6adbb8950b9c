"""Dynamic convolution: every sample is convolved with its own mixture of kernels.

Y. Chen et al., "Dynamic Convolution: Attention over Convolution Kernels", CVPR 2020.
"""
import mxnet as mx
from mxnet.gluon import HybridBlock, nn


class DynamicConv2D(HybridBlock):
    """2D convolution whose kernel is mixed per sample by an attention over `num_kernels`.

    W(x) = sum_k pi_k(x) W_k and b(x) = sum_k pi_k(x) b_k, with pi(x) = softmax(z(x) / T) and
    z(x) = dense(relu(dense(global average of x))).  A replacement for ``gluon.nn.Conv2D``
    that takes its arguments in the same order; only `in_channels` cannot be left out,
    because the width of the attention branch follows from it.

    Works for any batch size, hybridized and exported: the patches of all samples are unfolded
    and each sample's are multiplied with its own kernel matrix.  The patches take kh * kw
    times the memory of the input and, while training, stay until the backward pass.
    `benchmarks/dynamic_conv.py` compares this with the alternatives.

    Parameters
    ----------
    channels : int
        Output channels O.
    kernel_size, strides, padding, dilation : int or (int, int)
        As in ``gluon.nn.Conv2D``.
    groups : int
        Divides input and output channels.
    activation : str or None
        Applied to the output, as in ``gluon.nn.Conv2D``.
    use_bias : bool
    weight_initializer, bias_initializer : str or Initializer
        Each kernel is a parameter of its own (``weight0``, ...), so that an initializer sees
        the fan-in and fan-out of a plain convolution.
    in_channels : int
        Input channels C.
    num_kernels : int
        Kernels K to mix.
    reduction : int
        The attention branch has max(C // reduction, 1) hidden units.
    temperature : float
        T at the start.  A parameter without a gradient: saved, loaded and exported with the
        weights, and changed by :meth:`set_temperature` without hybridizing again.

    Inputs
    ------
    data : (B, C, H, W)

    Outputs
    -------
    out : (B, O, H', W')

    Raises
    ------
    ValueError
        If `in_channels` is missing, `groups` does not divide the channels, or a count or the
        temperature is not positive.
    """

    def __init__(self, channels, kernel_size, strides=1, padding=0, dilation=1, groups=1, *,
                 activation=None, use_bias=True, weight_initializer=None,
                 bias_initializer="zeros", in_channels=0, num_kernels=4, reduction=4,
                 temperature=30.0, **kwargs):
        super().__init__(**kwargs)
        if in_channels < 1:
            raise ValueError("DynamicConv2D: in_channels must be given, found {}"
                             .format(in_channels))
        if in_channels % groups or channels % groups:
            raise ValueError("DynamicConv2D: groups = {} must divide in_channels = {} and "
                             "channels = {}".format(groups, in_channels, channels))
        if num_kernels < 1 or reduction < 1:
            raise ValueError("DynamicConv2D: num_kernels and reduction must be at least 1, found "
                             "{} and {}".format(num_kernels, reduction))
        _check_temperature(temperature)
        self._channels, self._groups = channels, groups
        self._window = {"kernel": _pair(kernel_size), "stride": _pair(strides),
                        "dilate": _pair(dilation), "pad": _pair(padding)}
        kernel_shape = (channels, in_channels // groups) + _pair(kernel_size)
        self._taps = kernel_shape[1] * kernel_shape[2] * kernel_shape[3]    # C/groups * kh * kw
        with self.name_scope():
            self.attention = nn.HybridSequential(prefix="attention_")
            with self.attention.name_scope():
                hidden = max(in_channels // reduction, 1)
                self.attention.add(nn.GlobalAvgPool2D(),
                                   nn.Dense(hidden, activation="relu", in_units=in_channels),
                                   nn.Dense(num_kernels, in_units=hidden))
            self.weights = [self._register("weight{}".format(k), kernel_shape, weight_initializer)
                            for k in range(num_kernels)]
            self.bias = (self.params.get("bias", shape=(num_kernels, channels),
                                         init=bias_initializer) if use_bias else None)
            # As text: Gluon shares parameters only if their initializers compare equal.
            self.temperature = self.params.get("temperature", shape=(1,), differentiable=False,
                                               init=mx.init.Constant(temperature).dumps())
            self.activation = nn.Activation(activation) if activation else None

    def _register(self, name, shape, init):
        """Create a parameter and make it an argument of hybrid_forward."""
        setattr(self, name, self.params.get(name, shape=shape, init=init))
        return getattr(self, name)

    def set_temperature(self, value):
        """Set the softmax temperature (> 0) of an initialised layer, on all its devices."""
        _check_temperature(value)
        self.temperature.set_data(mx.nd.array([value]))

    def hybrid_forward(self, F, x, temperature, bias=None, **weights):
        logits = F.broadcast_div(self.attention(x), F.expand_dims(temperature, axis=0))
        share = F.softmax(logits, axis=-1)                                  # (B, K)
        kernels = F.stack(*(weights["weight{}".format(k)] for k in range(len(weights))), axis=0)
        out = self._convolve(F, x, share, kernels, bias)
        return self.activation(out) if self.activation else out

    def _convolve(self, F, x, share, kernels, bias):
        """One matrix product per group of a sample: (O/g, taps) x (taps, L) with L = H' W'."""
        mixed = F.dot(share, F.reshape(kernels, shape=(0, -1)))             # (B, O * taps)
        mixed = F.reshape(mixed, shape=(-1, self._channels // self._groups, self._taps))
        # identity: bfloat16 AMP casts its input to float32, but does not know im2col.
        patches = F.im2col(F.identity(x), **self._window)
        patches = F.reshape(patches, shape=(-1, self._taps, 0))             # (B * g, taps, L)
        out = F.reshape(F.batch_dot(mixed, patches), shape=(-1, self._channels, 0))
        if bias is not None:
            out = F.broadcast_add(out, F.expand_dims(F.dot(share, bias), axis=2))   # (B, O, L)
        return F.reshape_like(out, self._output_map(F, x), lhs_begin=2, lhs_end=3,
                              rhs_begin=2, rhs_end=4)

    def _output_map(self, F, x):
        """Any (B, 1, H', W') array: a graph knows the output size only as that of an array."""
        (kh, kw), (dh, dw), (ph, pw) = (self._window[name] for name in ("kernel", "dilate", "pad"))
        x = F.BlockGrad(F.slice_axis(x, axis=1, begin=0, end=1))
        x = F.pad(x, mode="constant", constant_value=0, pad_width=(0, 0, 0, 0, ph, ph, pw, pw))
        return F.slice(x, begin=(None, None, None, None), step=(1, 1) + self._window["stride"],
                       end=(None, None, -dh * (kh - 1) or None, -dw * (kw - 1) or None))

    def __repr__(self):
        return "{}({} -> {}, num_kernels={}, groups={}, {})".format(
            type(self).__name__, self.weights[0].shape[1] * self._groups, self._channels,
            len(self.weights), self._groups,
            ", ".join("{}={}".format(*item) for item in self._window.items()))


def set_temperature(net, value):
    """Set the temperature of every :class:`DynamicConv2D` in a network; return their number."""
    layers = []
    net.apply(lambda block: layers.append(block) if isinstance(block, DynamicConv2D) else None)
    for layer in layers:
        layer.set_temperature(value)
    return len(layers)


def temperature_at(step, steps, start=30.0, end=1.0):
    """The paper's schedule: linear from `start` at step 0 to `end` at `steps`, then constant.

    The paper anneals over the first 10 epochs, so that at the beginning every kernel is
    trained by every sample.  ``steps = 0`` gives `end` at once.
    """
    if step >= steps:
        return end
    return start + (end - start) * step / steps


def _pair(value):
    return (value, value) if isinstance(value, int) else tuple(value)


def _check_temperature(value):
    if not value > 0:
        raise ValueError("DynamicConv2D: temperature must be positive, found {}".format(value))
