"""k-max pooling: keep the k most active features, in the order in which they occurred."""
from mxnet.gluon import HybridBlock

from .select import check_k, unsorted_topk


class KMaxPool1D(HybridBlock):
    """The k largest elements along one axis, in their original order.

    ``[1, 2, 4, 10, 5, 3]`` with k = 3 becomes ``[4, 10, 5]``; (128, 512, 1, 125) with k = 7
    becomes (128, 512, 1, 7).  Of equal elements the first are kept.  The gradient reaches
    exactly the elements that were kept.

    Parameters
    ----------
    k : int
        Elements to keep, at least 1 and at most the length of the axis; the layer raises
        ``ValueError`` (``MXNetError`` when hybridized) on a shorter input.
    axis : int
        Axis to pool, the last by default.

    Inputs
    ------
    data : any number of dimensions, float16, float32 or float64

    Outputs
    -------
    out : shape of `data` with k at `axis`
    """

    def __init__(self, k, axis=-1, **kwargs):
        super().__init__(**kwargs)
        check_k(type(self).__name__, k)
        self._k = k
        self._axis = axis

    def hybrid_forward(self, F, x):
        return unsorted_topk(F, x, self._k, axis=self._axis)

    def __repr__(self):
        return "{}(k={}, axis={})".format(type(self).__name__, self._k, self._axis)


class KMaxPool2D(HybridBlock):
    """The k largest elements of every map, in row-major order of their places.

    Parameters
    ----------
    k : int
        Elements to keep, at least 1 and at most H * W; errors as in :class:`KMaxPool1D`.

    Inputs
    ------
    data : (B, C, H, W)

    Outputs
    -------
    out : (B, C, k)
    """

    def __init__(self, k, **kwargs):
        super().__init__(**kwargs)
        check_k(type(self).__name__, k)
        self._k = k

    def hybrid_forward(self, F, x):
        return unsorted_topk(F, F.reshape(x, shape=(0, 0, -1)), self._k)

    def __repr__(self):
        return "{}(k={})".format(type(self).__name__, self._k)
