"""Networks by name, in GluonCV's manner."""
from .checkpoint import load_weights
from .class_names import default_classes
from .config import load_config
from .errors import ConfigError
from .models import build_yolact


def get_model(name, classes=None, pretrained=None, pretrained_base=True, ctx=None, training=True,
              freeze_bn=False, overrides=()):
    """The network of a configuration.

    Parameters
    ----------
    name : str
        A configuration that comes with the package (``yolact_resnet50``), or a YAML file.
    classes : sequence of str, optional
        Names of the foreground classes.  By default the configuration's; where it has none,
        those of Pascal VOC for ``*_pascal`` and of COCO for the others.
    pretrained : path, optional
        A .params file of the whole network; the backbone's weights are then not needed.
    pretrained_base : bool or path
        Weights of the backbone for training: ImageNet weights, downloaded (True), a .params file,
        or random ones (False).
    ctx : Context or list of Context
        By default the CPU.
    training : bool
        With the semantic branch, and gradients.  False: only what detection needs, and no
        weights of the backbone are loaded.
    freeze_bn : bool
        BatchNorm with fixed statistics and parameters.
    overrides : sequence of ``key.sub=value``
        Other options of the configuration.

    Returns
    -------
    Yolact
        With the attributes ``config`` and ``classes`` (list of str), which
        :func:`~yolact_mx.losses.build_loss` and :func:`~yolact_mx.detect.build_detector` take.

    Raises
    ------
    ConfigError, CheckpointError
        Name what is unknown, or does not fit.
    """
    config = load_config(name, overrides)
    config.classes = list(classes or config.classes or default_classes(config.name))
    if isinstance(classes, str) or len(set(config.classes)) != len(config.classes):
        raise ConfigError("classes: expected a sequence of different names, found {!r}".format(
            classes))
    base = "imagenet" if pretrained_base is True else str(pretrained_base or "")
    config.model.backbone.weights = "" if pretrained else base
    net = build_yolact(config, len(config.classes), ctx, training, freeze_bn)
    if pretrained:
        load_weights(net, pretrained)
    net.config, net.classes = config, config.classes
    return net
