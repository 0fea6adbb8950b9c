"""A network with dynamic convolutions in head and protonet trains, and its temperature falls."""
import numpy as np
from tiny import four_class_data, write_config

from yolact_mx.config import load_config
from yolact_mx.data.coco import CocoDataset
from yolact_mx.nn import DynamicConv2D
from yolact_mx.trainer import Trainer


def test_training_with_dynamic_convolutions(tmp_path):
    import mxnet as mx
    data = four_class_data(tmp_path / "data")
    config = load_config(write_config(tmp_path), [
        "model.head.conv=dynamic", "model.protonet.conv=dynamic", "train.temperature_epochs=2"])
    train_set = CocoDataset(data / "instances_train.json", data / "images")
    config.classes = train_set.classes
    steps = 2 * (len(train_set) // config.train.batch_size) + 1
    trainer = Trainer(config, train_set, None, tmp_path / "run", [mx.cpu()], steps=steps)
    layers = []
    trainer.net.apply(lambda b: layers.append(b) if isinstance(b, DynamicConv2D) else None)
    before = [layer.weight0.data().asnumpy() for layer in layers]
    trainer.fit()
    assert len(layers) == 9
    assert all(layer.temperature.data().asscalar() == 1 for layer in layers)  # from 30
    assert all(np.abs(layer.weight0.data().asnumpy() - old).max() > 0
               for layer, old in zip(layers, before))
