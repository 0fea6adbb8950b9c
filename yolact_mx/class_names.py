"""Names of the classes that the reference's weights know, in their order."""

COCO = tuple("""person, bicycle, car, motorcycle, airplane, bus, train, truck, boat, traffic light,
fire hydrant, stop sign, parking meter, bench, bird, cat, dog, horse, sheep, cow, elephant, bear,
zebra, giraffe, backpack, umbrella, handbag, tie, suitcase, frisbee, skis, snowboard, sports ball,
kite, baseball bat, baseball glove, skateboard, surfboard, tennis racket, bottle, wine glass, cup,
fork, knife, spoon, bowl, banana, apple, sandwich, orange, broccoli, carrot, hot dog, pizza, donut,
cake, chair, couch, potted plant, bed, dining table, toilet, tv, laptop, mouse, remote, keyboard,
cell phone, microwave, oven, toaster, sink, refrigerator, book, clock, vase, scissors, teddy bear,
hair drier, toothbrush""".replace("\n", " ").split(", "))

PASCAL = tuple("""aeroplane, bicycle, bird, boat, bottle, bus, car, cat, chair, cow, diningtable,
dog, horse, motorbike, person, pottedplant, sheep, sofa, train, tvmonitor"""
               .replace("\n", " ").split(", "))


def default_classes(config_name):
    """Classes of the data set that a configuration of the reference is for."""
    return PASCAL if "pascal" in config_name else COCO


def names_for(count):
    """Names for ``count`` classes of unknown origin: COCO's or Pascal's where the number fits."""
    return {len(COCO): COCO, len(PASCAL): PASCAL}.get(
        count, tuple("class {}".format(i) for i in range(count)))
