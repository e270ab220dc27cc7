"""From a trial that ended to its record."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import version

from .. import __version__
from ..kernels.operator import Workload
from .measuring.measurement import Timing
from .records.record import Record
from .running.device import Device
from .running.pipeline import Trial


@dataclass(frozen=True)
class TrialOrigin:
    """What the records of a session have in common; each field is one of `Record`'s."""

    workload: Workload
    workload_ir: str
    target: str
    strategy: str
    seed: int
    timing: Timing
    device: Device

    def record(self, trial: Trial) -> Record:
        """Write down how a trial ended."""
        workload, candidate, built, ran = self.workload, trial.candidate, trial.built, trial.ran
        assert built is not None and ran is not None
        return Record(
            id=uuid.uuid4().hex[:12],
            created=datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
            operator=workload.name,
            shape=dict(workload.shape),
            dtype=workload.dtype,
            workload_hash=workload.hash,
            workload_ir=self.workload_ir,
            target=self.target,
            machine_fingerprint=self.device.fingerprint,
            space=trial.space,
            strategy=self.strategy,
            seed=self.seed,
            knobs=candidate.knobs,
            trace=built.trace or candidate.trace,
            status=ran.status,
            verified=ran.verified,
            max_error=ran.max_error,
            run_secs=ran.run_secs,
            build_s=built.build_s,
            message=ran.message,
            tvm_version=version("apache-tvm"),
            tunesmith_version=__version__,
            key=candidate.key,
            binary=built.binary,
            same_as=trial.same_as.id if trial.same_as else "",
            device=self.device.name,
            threads=self.device.threads,
            calls=ran.calls,
            cache=self.timing.cache,
        )
