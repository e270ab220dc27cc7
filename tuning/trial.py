"""From a candidate that was built and run to its record."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from datetime import datetime, timezone
from importlib.metadata import version

from .. import __version__
from ..kernels.operator import Workload
from ..machine.facts import machine_fingerprint
from .candidate import Candidate
from .record import Record
from .tasks import Built, Ran


@dataclass(frozen=True)
class TrialOrigin:
    """What the records of a session have in common; each field is one of `Record`'s."""

    workload: Workload
    workload_ir: str
    target: str
    space: str
    strategy: str
    seed: int

    def record(self, candidate: Candidate, built: Built, ran: Ran) -> Record:
        """Write down how a candidate did."""
        workload = self.workload
        return Record(
            id=uuid.uuid4().hex[:12],
            created=datetime.now(timezone.utc).isoformat(timespec="milliseconds"),
            operator=workload.name,
            shape=dict(workload.shape),
            dtype=workload.dtype,
            workload_hash=workload.hash,
            workload_ir=self.workload_ir,
            target=self.target,
            machine_fingerprint=machine_fingerprint(),
            space=self.space,
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
        )
