"""Convolution whose number of channels costs no more than the next multiple of 16."""

from mxnet.gluon import nn


class WidenedConv2D(nn.Conv2D):
    """A Conv2D with a bias that computes a multiple of 16 channels and returns its own.

    oneDNN works on blocks of 16 channels; with others its convolution, and above all its
    backward, takes several times as long (27 channels: three times as long as 32).
    Parameters and results are those of Conv2D.
    """

    def hybrid_forward(self, F, x, weight, bias):
        # of fewer than 8 channels there are not enough to slice; twice as many is as good
        extra = min(-self._channels % 16, self._channels)
        if not extra:
            return super().hybrid_forward(F, x, weight, bias)
        weight, bias = (
            F.concat(own, F.zeros_like(F.slice_axis(own, axis=0, begin=0, end=extra)), dim=0)
            for own in (weight, bias)
        )
        settings = dict(self._kwargs, num_filter=self._channels + extra)
        out = F.Convolution(x, weight, bias, **settings)
        out = F.slice_axis(out, axis=1, begin=0, end=self._channels)
        return self.act(out) if self.act is not None else out
