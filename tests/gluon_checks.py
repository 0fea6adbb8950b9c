"""What the tests of layers share: run, export, differentiate numerically."""
import numpy as np
from mxnet import autograd, gluon, nd


def outputs(block, *inputs):
    out = block(*inputs)
    return [o.asnumpy() for o in (out if isinstance(out, (list, tuple)) else [out])]


def exported(block, path, names):
    block.export(str(path))
    return gluon.SymbolBlock.imports(str(path) + "-symbol.json", names)


def finite_differences(function, x, step=1e-4):
    """Central differences of a scalar function of a float64 array."""
    grad = np.zeros_like(x)
    for place in np.ndindex(*x.shape):
        for sign in (1, -1):
            moved = x.copy()
            moved[place] += sign * step
            grad[place] += sign * function(nd.array(moved, dtype="float64")).asscalar()
    return grad / (2 * step)


def assert_gradient(function, x):
    """Compare autograd's gradient of ``function(x).sum()`` with finite differences."""
    data = nd.array(x, dtype="float64")
    data.attach_grad()
    with autograd.record():
        loss = function(data).sum()
    loss.backward()
    expected = finite_differences(lambda x: function(x).sum(), x)
    np.testing.assert_allclose(data.grad.asnumpy(), expected, rtol=1e-6, atol=1e-6)
