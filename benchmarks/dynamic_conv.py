"""Ways to convolve every sample with its own mixture of kernels, side by side.

    python benchmarks/dynamic_conv.py
    python benchmarks/dynamic_conv.py --batch 8 --size 18

Every form is the whole layer, attention included; only the convolution differs.
"""
import argparse

from timing import forward_backward, interleaved  # first: it prepares the process for MXNet

# isort: split
import mxnet as mx
from mxnet import gluon, nd

from yolact_mx.nn import DynamicConv2D

KERNEL, PAD = (3, 3), (1, 1)


class GroupedFixedBatch(DynamicConv2D):
    """The batch folded into channels; the number of groups fixes the batch size."""

    def _convolve(self, F, x, share, kernels, bias):
        channels, in_channels = self.weights[0].shape[:2]
        weight = F.reshape(F.dot(share, F.reshape(kernels, shape=(0, -1))),
                           shape=(-1, in_channels) + KERNEL)
        out = F.Convolution(F.expand_dims(F.reshape(x, shape=(-3, -2)), axis=0), weight,
                            F.reshape(F.dot(share, bias), shape=(-1,)), kernel=KERNEL, pad=PAD,
                            num_filter=channels * self.batch, num_group=self.batch)
        return F.reshape_like(out, x, lhs_begin=0, lhs_end=2, rhs_begin=0, rhs_end=2)


class MixedOutputs(DynamicConv2D):
    """K convolutions, their outputs mixed: the same function, K times the work."""

    def _convolve(self, F, x, share, kernels, bias):
        num_kernels, channels = len(self.weights), self.weights[0].shape[0]
        out = F.Convolution(x, F.reshape(kernels, shape=(-3, -2)), F.reshape(bias, shape=(-1,)),
                            kernel=KERNEL, pad=PAD, num_filter=num_kernels * channels)
        mixed = F.batch_dot(F.expand_dims(share, axis=1), F.reshape(out, (0, num_kernels, -1)))
        return F.reshape_like(F.reshape(mixed, shape=(0, channels, -1)), out,
                              lhs_begin=2, lhs_end=3, rhs_begin=2, rhs_end=4)


class Foreach(DynamicConv2D):
    """One convolution per sample in a control-flow operator.

    Wrong results in a network with ``static_shape=True`` and no graph at all under AMP, so
    it is here for its time only.
    """

    def _convolve(self, F, x, share, kernels, bias):
        channels, in_channels = self.weights[0].shape[:2]
        weight = F.reshape(F.dot(share, F.reshape(kernels, shape=(0, -1))),
                           shape=(-1, channels, in_channels) + KERNEL)

        def one_sample(sample, states):
            x, weight, bias = sample
            # The copy: for inference the CPU convolution reorders its weight in place, and
            # would write into the neighbouring samples' kernels.
            out = F.Convolution(F.expand_dims(x, axis=0), weight * 1, bias, kernel=KERNEL,
                                pad=PAD, num_filter=channels)
            return F.reshape(out, shape=(-3, -2)), states

        return F.contrib.foreach(one_sample, [x, weight, F.dot(share, bias)], [])[0]


def forms(batch, channels):
    """The layers, all with the parameters of the first."""
    ours = DynamicConv2D(channels, KERNEL, padding=PAD, in_channels=channels, temperature=1.0)
    ours.initialize(mx.init.Xavier())
    table = {"DynamicConv2D (unfold + batch_dot)": ours}
    for name, kind in (("grouped, fixed batch", GroupedFixedBatch),
                       ("outputs of K convolutions", MixedOutputs),
                       ("foreach sample", Foreach)):
        table[name] = kind(channels, KERNEL, padding=PAD, in_channels=channels, temperature=1.0,
                           params=ours.collect_params(), prefix=ours.prefix)
    table["grouped, fixed batch"].batch = batch
    table["(one plain convolution)"] = gluon.nn.Conv2D(channels, KERNEL, padding=PAD,
                                                       in_channels=channels)
    table["(one plain convolution)"].initialize()
    for block in table.values():
        block.hybridize(static_alloc=True)
    return table


def compare(batch, size, channels, rounds):
    x = nd.random.normal(shape=(batch, channels, size, size))
    x.attach_grad()
    table = forms(batch, channels)
    outs = {name: form(x) for name, form in table.items()}
    reference = outs["outputs of K convolutions"]
    errors = {name: (abs(out - reference).max() / abs(reference).max()).asscalar()
              for name, out in outs.items()}
    forward = interleaved({name: lambda form=form: form(x) for name, form in table.items()}, rounds)
    both = interleaved({name: lambda form=form: forward_backward(form, x)
                        for name, form in table.items()}, rounds)
    print("\nbatch {}, {} -> {} channels, {} x {}, 3x3, 4 kernels".format(
        batch, channels, channels, size, size))
    print("{:36}{:>10}{:>14}{:>16}".format("", "error", "forward ms", "with backward"))
    for name in table:
        error = "" if name.startswith("(") else "{:.0e}".format(errors[name])
        print("{:36}{:>10}{:14.1f}{:16.1f}".format(
            name, error, 1e3 * forward[name], 1e3 * both[name]))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--size", type=int, nargs="+", default=[69, 35, 18])
    parser.add_argument("--channels", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    mx.random.seed(0)
    for size in options.size:
        compare(options.batch, size, options.channels, options.rounds)


if __name__ == "__main__":
    main()
