"""The packages whose calls are recorded, as a script spells them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlprobe.doctor.imports import Sources


@dataclass(frozen=True, slots=True)
class Package:
    """A package whose calls are recorded.

    Attributes:
        name: what is shown.
        modules: what a script imports, with a dot where it is a part of a package.
        distributions: who brings it, by the names of pip.
        calls: names of the functions and methods that are recorded.
        classes: endings of the names that a training needs; empty where an import tells.
        needs: other packages without which it does not work.
        oldest: the oldest version that it is tested with.
        switches: variables that turn it off, with their values; any value where there are none.
        ours: whether it is recorded by more than its calls, which needs rlprobe there.
        stack: whether it logs by itself: `python -m` of a module of it is enough.
    """

    name: str
    modules: tuple[str, ...]
    distributions: tuple[str, ...]
    calls: tuple[str, ...] = ()
    classes: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    oldest: str = ""
    switches: tuple[tuple[str, tuple[str, ...]], ...] = ()
    ours: bool = False
    stack: bool = False

    @property
    def roots(self) -> tuple[str, ...]:
        """The top names of its modules."""
        return tuple(dict.fromkeys(module.partition(".")[0] for module in self.modules))

    def owns(self, name: str) -> bool:
        """Whether a dotted name is of this package."""
        return any(name == module or name.startswith(f"{module}.") for module in self.modules)


_SCALARS = ("add_scalar", "add_scalars", "add_text", "add_histogram")
_OFF = ("disabled", "offline", "dryrun")
PACKAGES = (
    Package("trl", ("trl",), ("trl",), classes=("Trainer",), oldest="0.20", ours=True),
    Package(
        "transformers",
        ("transformers",),
        ("transformers",),
        classes=("Trainer",),
        oldest="4.56",
        ours=True,
    ),
    Package(
        "wandb",
        ("wandb",),
        ("wandb", "wandb-core"),
        ("log", "define_metric", "update"),
        switches=(("WANDB_MODE", _OFF), ("WANDB_DISABLED", ("true", "1", "yes"))),
    ),
    Package(
        "torch.utils.tensorboard",
        ("torch.utils.tensorboard",),
        ("torch",),
        _SCALARS,
        needs=("tensorboard",),
    ),
    Package("tensorboardX", ("tensorboardX",), ("tensorboardX",), _SCALARS),
    Package(
        "mlflow",
        ("mlflow",),
        ("mlflow", "mlflow-skinny"),
        ("log_metric", "log_metrics"),
    ),
    Package("trackio", ("trackio",), ("trackio",), ("log",)),
    Package("swanlab", ("swanlab",), ("swanlab",), ("log",), switches=(("SWANLAB_MODE", _OFF),)),
    Package(
        "comet_ml",
        ("comet_ml",),
        ("comet-ml",),
        ("log_metric", "log_metrics"),
        switches=(("COMET_MODE", _OFF),),
    ),
    Package("aim", ("aim",), ("aim",), ("track",)),
    Package(
        "neptune",
        ("neptune", "neptune_scale"),
        ("neptune", "neptune-client", "neptune-scale"),
        ("append", "extend", "log", "log_metrics"),
        switches=(("NEPTUNE_MODE", (*_OFF, "debug")),),
    ),
    Package(
        "clearml",
        ("clearml",),
        ("clearml",),
        ("report_scalar", "report_single_value"),
        switches=(("CLEARML_OFFLINE_MODE", ("1",)),),
    ),
    Package(
        "lightning",
        ("lightning", "pytorch_lightning", "lightning_fabric"),
        ("lightning", "pytorch-lightning"),
        ("log", "log_dict", "log_metrics"),
        classes=("Trainer", "Fabric", "Logger"),
    ),
    Package(
        "stable_baselines3",
        ("stable_baselines3", "sb3_contrib"),
        ("stable-baselines3",),
        ("learn", "record"),
    ),
    Package(
        "ray",
        ("ray.tune", "ray.train", "ray.rllib", "ray.air"),
        ("ray",),
        ("report",),
    ),
    Package("accelerate", ("accelerate",), ("accelerate",), ("log",)),
    Package("keras", ("keras", "tensorflow.keras"), ("keras",), ("fit",)),
    Package("verl", ("verl",), ("verl",), ("log",), stack=True),
    Package("skyrl", ("skyrl", "skyrl_train"), ("skyrl", "skyrl-train"), ("log",), stack=True),
    Package("openrlhf", ("openrlhf",), ("openrlhf",), stack=True),
    Package("nemo_rl", ("nemo_rl",), ("nemo-rl",), ("log_metrics",), stack=True),
)


@dataclass(frozen=True, slots=True)
class Use:
    """How a script uses a package.

    Attributes:
        places: files that import it.
        seen: what of it is recorded, as the files spell it: calls and classes, with their places.
        optional: whether each import of it is inside a function, a `try` or an `if`.
    """

    package: Package
    places: tuple[str, ...]
    seen: tuple[str, ...]
    optional: bool


def uses(sources: Sources, module: str = "") -> list[Use]:
    """The packages of the table that are imported in what was looked at.

    Args:
        module: what `python -m` runs, which counts as an import.
    """
    return [use for package in PACKAGES if (use := _use(package, sources, module)) is not None]


def _use(package: Package, sources: Sources, module: str) -> Use | None:
    own = [(file, item) for file, item in sources.imports if package.owns(item.name)]
    if not own and not package.owns(module):
        return None
    files = tuple(dict.fromkeys(file for file, _ in own))
    classes = [
        (item.name.rpartition(".")[2], f"{file}, line {item.line}")
        for file, item in own
        if item.name.endswith(package.classes or ("\0",))
    ]
    calls = [
        (call.spelled.lstrip("."), f"{file}, line {call.line}")
        for file, call in sources.calls
        if call.method in package.calls and _is_its_own(package, call.name, sources)
    ]
    seen = [
        *classes,
        *calls,
        *([(module, "python -m")] if package.stack and package.owns(module) else []),
    ]
    return Use(package, files, _once_each(seen), all(item.optional for _, item in own))


def _is_its_own(package: Package, name: str, sources: Sources) -> bool:
    """Whether a call may be of this package: by its full name, or of an object of unknown kind."""
    root = name.partition(".")[0]
    if package.owns(name) or root in package.roots:
        return True
    others = {item.name.partition(".")[0] for _, item in sources.imports}
    return root not in others and root not in ("math", "np", "torch", "logging")


def _once_each(seen: Sequence[tuple[str, str]]) -> tuple[str, ...]:
    """`wandb.log (train.py, line 3, and 2 more)`."""
    places: dict[str, list[str]] = {}
    for name, place in seen:
        places.setdefault(name, []).append(place)
    more = {name: len(set(at)) - 1 for name, at in places.items()}
    return tuple(
        f"{name} ({at[0]}{f', and {more[name]} more' if more[name] else ''})"
        for name, at in places.items()
    )
