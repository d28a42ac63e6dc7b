"""Calls each function that NVML's header declares, of which is known here whether it is about a device: before the
library is initialized, and then with a device and room for whatever is written, with a device that there is not, and
with nulls.

  everything.py HEADER

Every answer has to be a code of NVML's. Says how many functions gave which."""

import collections
import ctypes
import faulthandler
import re
import sys

faulthandler.enable()
nvml = ctypes.CDLL("libnvidia-ml.so.1")
CODES = {*range(30), 999}
UNINITIALIZED, INVALID_ARGUMENT = 1, 2
# What begins and ends, what gives a text in place of a code, and what waits, or writes, as much as it is told.
OTHER = re.compile("nvml(Init|Shutdown|ErrorString|.*EventSetWait|DeviceGetFieldValues|DeviceGet.*Affinity)")

with open(sys.argv[1], encoding="utf-8") as header:
    declared = dict(re.findall(r"DECLDIR\s+\**\s*(nvml\w+)\s*\(\s*(\w+)", header.read()))
names = [name for name in declared if not OTHER.match(name)]
of_devices = {name for name in names if declared[name] == "nvmlDevice_t"}
assert len(names) > 400 and len(of_devices) > 200, (len(names), len(of_devices))
rooms = [ctypes.create_string_buffer(1 << 18) for _ in range(8)]


def call(name, first, others):
    for room in rooms:
        ctypes.memset(room, 0, len(room))
    code = getattr(nvml, name)(ctypes.c_void_p(first), *(ctypes.c_void_p(other) for other in others))
    assert code in CODES, f"{name} answers {code}"
    return code


def answers(first, others, device=None):
    """`device` is the first argument of those that are about one."""
    of = {name: first if device is None or name not in of_devices else device for name in names}
    return {name: call(name, of[name], others) for name in names}


addresses = [ctypes.addressof(room) for room in rooms]
before = answers(addresses[0], addresses[1:])
wrong = sorted(name for name, code in before.items() if code not in (UNINITIALIZED, INVALID_ARGUMENT))
assert not wrong, f"not initialized: {wrong}"
assert nvml.nvmlInit_v2() == 0
device = ctypes.c_void_p()
assert nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
for what, asked in (
    ("a device", answers(addresses[0], addresses[1:], device.value)),
    ("no device", answers(addresses[0], addresses[1:], 0xDEADBEEF)),
    ("nulls", answers(0, [0] * 7)),
):
    if what != "a device":
        right = [name for name in of_devices if asked[name] == 0]
        assert not right, f"with {what}: {right}"
    print(what, sorted(collections.Counter(asked.values()).items()))
