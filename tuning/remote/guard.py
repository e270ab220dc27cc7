"""What is loaded first in every session: it keeps a server alive whose kernel crashes.

A server of TVM serves each session in a child process. When that child dies of a signal, the server's only
thread raises and it never serves again. So the child forks: its own child serves the session, and the one
that the server waits for always ends well.
"""

from __future__ import annotations

import os
from pathlib import Path

import tvm_ffi
from tvm.support import cc

_NAME = "session_guard"

_SOURCE = r"""
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#include <sys/syscall.h>
#endif
#ifdef __x86_64__
#include <cpuid.h>
#endif
#include <tvm/ffi/c_api.h>

__attribute__((constructor)) static void guard() {
  pid_t server = getpid(), session = fork();
  if (session > 0) {
    waitpid(session, nullptr, 0);
    _exit(0);
  }
#ifdef __linux__
  // Where the server ends a session that takes too long, this child ends with it.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (session == 0 && getppid() != server) _exit(0);
  // TVM takes half of the CPUs when nothing is said; here as on this side: all of them.
  cpu_set_t cpus;
  if (sched_getaffinity(0, sizeof(cpus), &cpus) == 0) {
    char count[16];
    snprintf(count, sizeof(count), "%d", CPU_COUNT(&cpus));
    setenv("TVM_NUM_THREADS", count, 0);
  }
#endif
}

extern "C" __attribute__((visibility("default"))) int __tvm_ffi_version(
    void*, const TVMFFIAny*, int32_t, TVMFFIAny* result) {
  TVMFFIVersion version;
  TVMFFIGetVersion(&version);
  result->type_index = kTVMFFIInt;
  result->v_int64 = (version.major * 1000LL + version.minor) * 1000 + version.patch;
  return 0;
}

// Which features of `TILE_FEATURES` there are, a bit for each in their order, if the system gives leave.
extern "C" __attribute__((visibility("default"))) int __tvm_ffi_tile_features(
    void*, const TVMFFIAny*, int32_t, TVMFFIAny* result) {
  result->type_index = kTVMFFIInt;
  result->v_int64 = 0;
#if defined(__linux__) && defined(__x86_64__)
  unsigned a, b, c, d;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) && syscall(SYS_arch_prctl, 0x1023, 18) == 0)
    result->v_int64 = (d >> 24 & 1) | (d >> 25 & 1) << 1 | (d >> 22 & 1) << 2;
#endif
  return 0;
}
"""


def guard_library(folder: str) -> str:
    """Return the path of the guard's library in a folder; it is compiled there where it is missing.

    The compiler is TVM's: ``CXX`` names one for servers of another architecture.
    """
    library = Path(folder, f"{_NAME}.so")
    if not library.exists():
        source, written = (Path(folder, f"{_NAME}-{os.getpid()}.{end}") for end in ("cc", "so"))
        source.write_text(_SOURCE)
        include = f"-I{tvm_ffi.libinfo.find_include_path()}"
        cc.create_shared(str(written), str(source), options=["-O1", "-std=c++17", include])
        source.unlink()
        written.replace(library)
    return str(library)
