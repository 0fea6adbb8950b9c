"""Learning rates against those of the reference's training loop."""
import pytest
from golden_support import configuration, load, names_of

from yolact_mx.schedule import build_schedule, lr_at

EXACT = 1e-14  # float64 arithmetic in another order


@pytest.fixture(scope="module")
def figures(golden):
    return load(golden, "schedule.npz")


def test_schedule(figures):
    names = figures["names"].tolist()
    assert names
    for name in names:
        config, batch = name.rsplit("_b", 1)
        settings = configuration(config, 550).train
        schedule = build_schedule(settings, int(batch))
        rates = figures[name + "/lr"]
        figures.close("learning rate", [lr_at(step, schedule) for step in
                                        figures[name + "/iteration"].tolist()],
                      rates, EXACT, scale=rates)
        figures.close("learning rate", schedule.lr, figures[name + "/base_lr"], EXACT)
        figures.exact("steps", schedule.steps, figures[name + "/max_iter"])
        figures.exact("steps", schedule.lr_steps, figures[name + "/lr_steps"])


def pytest_generate_tests(metafunc):
    if "train" in metafunc.fixturenames:
        metafunc.parametrize("train", names_of(metafunc, "train_*.npz"))


def test_schedule_of_the_training_figures(golden, train):
    figures = load(golden, train)
    if "sgd/lr" not in figures:
        return  # made without a trajectory
    settings = configuration(figures.meta["config"], figures.meta["max_size"]).train
    rates = figures["sgd/lr"]
    schedule = build_schedule(settings, len(figures["num_pos"]))
    figures.close("learning rate", [lr_at(step, schedule) for step in range(len(rates))], rates,
                  EXACT, scale=rates)
