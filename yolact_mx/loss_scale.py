"""Scaling of the loss, so that gradients in float16 become neither 0 nor infinite."""

import logging

from .errors import NonFiniteLoss

logger = logging.getLogger(__name__)
_PATIENCE = 2000  # updates
_LARGEST = 2.0**24


class LossScale:
    """Factor of the loss (Micikevicius et al. 2018, Mixed Precision Training, section 3.2).

    Halved when a gradient is not finite, in which case the update is left out; doubled after
    2000 updates in a row.
    """

    def __init__(self, value=2.0**16, updates=0):
        self.value, self.updates, self.skipped = value, updates, 0

    def accept(self, finite):
        """Whether to update, given that all gradients are ``finite``; adapts the factor.

        Raises NonFiniteLoss if they are not finite without a factor either.
        """
        self.updates = self.updates + 1 if finite else 0
        if finite:
            if self.updates == _PATIENCE:
                self.value, self.updates = min(2 * self.value, _LARGEST), 0
            return True
        self.skipped += 1
        self.value /= 2
        if self.value < 1:
            raise NonFiniteLoss("gradients are not finite, whatever the loss is scaled by")
        logger.info(
            "train.amp: a gradient was not finite; this update (%d so far) is left out, the loss "
            "is scaled by %g from now on",
            self.skipped,
            self.value,
        )
        return False
