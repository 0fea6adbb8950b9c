"""Forms of the modulated deformable convolution (DCNv2) side by side, on the CPU.

    python benchmarks/deform_conv.py
    python benchmarks/deform_conv.py --shape 1x512x18x18 --rounds 15

Every form is the whole layer, the convolution that predicts offsets and masks included, with
samples some pixels away from the kernel.  ``library`` needs ``yolact-mx build-ops``.
"""
import argparse

from timing import forward_backward, interleaved  # first: it prepares the process for MXNet

# isort: split
import mxnet as mx
from mxnet import nd

from yolact_mx.nn import native_ops
from yolact_mx.nn.deform_conv import SAMPLERS, ModulatedDeformConv2D


def forms(channels):
    """{sampler: layer}, all with the parameters of the first."""
    table = {}
    for sampler in SAMPLERS:
        if sampler == "library" and not native_ops.load():
            continue
        shared = {name: value for block in list(table.values())[:1] for name, value in (
            ("params", block.collect_params()), ("prefix", block.prefix))}
        table[sampler] = ModulatedDeformConv2D(channels, in_channels=channels, sampler=sampler,
                                               **shared)
    first = table["composed"]
    first.initialize(mx.init.Xavier())
    first.conv_offset_mask.initialize(mx.init.Normal(2 / (9 * channels) ** 0.5), force_reinit=True)
    for block in table.values():
        block.hybridize(static_alloc=True)
    return table


def compare(shape, rounds):
    x = nd.random.normal(shape=shape)
    x.attach_grad()
    table = forms(shape[1])
    expected = table["composed"](x)
    errors = {name: (abs(form(x) - expected).max() / abs(expected).max()).asscalar()
              for name, form in table.items()}
    forward = interleaved({name: lambda form=form: form(x) for name, form in table.items()}, rounds)
    trainable = {name: form for name, form in table.items() if name != "mxnet"}  # needs a GPU
    both = interleaved({name: lambda form=form: forward_backward(form, x)
                        for name, form in trainable.items()}, rounds)
    print("\n{}, 3x3, as many channels out".format("x".join(map(str, shape))))
    print("{:10}{:>8}{:>12}{:>12}{:>16}{:>12}".format(
        "", "error", "forward ms", "times", "with backward", "times"))
    for name in table:
        line = "{:10}{:8.0e}{:12.1f}{:12.2f}".format(
            name, errors[name], 1e3 * forward[name], forward["composed"] / forward[name])
        if name in both:
            line += "{:16.1f}{:12.2f}".format(1e3 * both[name], both["composed"] / both[name])
        print(line)
    print("times: as fast as composed")


def shape(text):
    return tuple(int(number) for number in text.split("x"))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--shape", type=shape, nargs="+",
                        default=[(1, 256, 35, 35), (2, 128, 69, 69)], metavar="BxCxHxW")
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    mx.random.seed(0)
    for size in options.shape:
        compare(size, options.rounds)


if __name__ == "__main__":
    main()
