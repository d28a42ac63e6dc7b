"""What NCCL asks of NVML before it decides how two GPUs reach each other, a line for each device.

How many links are up, to what, and whether the two may read each other's memory, by NVLink or by PCIe."""

import ctypes

nvml = ctypes.CDLL("libnvidia-ml.so.1")
LINKS_MAX, STATE, READ, NVLINK, PCI = 18, 165, 0, 2, 4


class Field(ctypes.Structure):
    _fields_ = [
        ("id", ctypes.c_uint),
        ("scope", ctypes.c_uint),
        ("times", ctypes.c_longlong * 2),
        ("type", ctypes.c_uint),
        ("answer", ctypes.c_uint),
        ("value", ctypes.c_ulonglong),
    ]


class Pci(ctypes.Structure):
    _fields_ = [("legacy", ctypes.c_char * 16), ("words", ctypes.c_uint * 5), ("bus_id", ctypes.c_char * 32)]


def ask(name, *arguments):
    """The number that a function writes, or nothing."""
    value = ctypes.c_uint()
    return value.value if getattr(nvml, name)(*arguments, ctypes.byref(value)) == 0 else None


def is_up(device, link):
    field = Field(id=STATE, scope=link)
    assert nvml.nvmlDeviceGetFieldValues(device, 1, ctypes.byref(field)) == 0
    by_field = field.answer == 0 and field.value == 1
    assert by_field == (ask("nvmlDeviceGetNvLinkState", device, link) == 1)
    return by_field and ask("nvmlDeviceGetNvLinkCapability", device, link, 0) == 1


def target(device, link):
    pci = Pci()
    assert nvml.nvmlDeviceGetNvLinkRemotePciInfo_v2(device, link, ctypes.byref(pci)) == 0
    return pci.bus_id.decode()


def main():
    assert nvml.nvmlInit_v2() == 0
    devices = [ctypes.c_void_p() for _ in range(ask("nvmlDeviceGetCount_v2"))]
    for index, device in enumerate(devices):
        assert nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(device)) == 0
    for device in devices:
        up = [link for link in range(LINKS_MAX + 1) if is_up(device, link)]
        others = [other for other in devices if other.value != device.value]
        ways = [[ask("nvmlDeviceGetP2PStatus", device, other, way) for way in (READ, NVLINK, PCI)] for other in others]
        print(len(up), *sorted({target(device, link) for link in up}), ways)


main()
