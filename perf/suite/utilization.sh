#!/usr/bin/env bash
# Shows on a machine with a GPU how busy a program is said to keep it, by all that says so, while it works, beside one
# that is idle, and when both are idle; next to each other what Orion says and what NVIDIA's own nvidia-smi does.
#   utilization.sh [BUILT] [OPTION…]     the folder of the programs, target/release if none is named; oriond's options
# Needs oriond, orion-shim, orion-nvml and orion-ctl built, and python3. Without a GPU it shows the software GPU.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
built=$(cd "${1:-$root/target/release}" && pwd)
shift || true
place=$(mktemp -d /tmp/orion-utilization-XXXXXX)
mkdir "$place/lib"
ln -s "$built/libcuda.so" "$place/lib/libcuda.so.1"
ln -s "$built/libnvidia_ml.so" "$place/lib/libnvidia-ml.so.1"
"$built/oriond" serve --socket "$place/oriond.sock" --listen none --metrics 127.0.0.1:0 "$@" 2>"$place/log" &
oriond=$!
children=("$oriond")
trap 'kill "${children[@]}" 2>/dev/null || true; wait; rm -rf "$place"' EXIT
for ((i = 0; i < 300; i++)); do
    ! grep -q "serving addresses" "$place/log" || break
    sleep 0.2
done
grep -hE "driver=|NVML|libnvidia" "$place/log" || true

orion() { env LD_LIBRARY_PATH="$place/lib" ORION_SERVER="unix:$place/oriond.sock" "$@"; }
talk() { orion python3 "$root/dataplane/conformance/nvml/hold.py"; }
mkfifo "$place/busy" "$place/idle"
talk <"$place/busy" >"$place/busy.said" &
children+=($!)
exec 8>"$place/busy"
talk <"$place/idle" >"$place/idle.said" &
children+=($!)
exec 9>"$place/idle"
for ((i = 0; i < 300; i++)); do
    [ ! -s "$place/busy.said" ] || [ ! -s "$place/idle.said" ] || break
    sleep 0.2
done
address=$(sed -n 's/.*serving metrics.*address=\([^ ]*\).*/\1/p' "$place/log" | head -n 1)

look() {
    echo "--- $1"
    echo "Orion's NVML, of the device and of each process:"
    orion python3 - <<'END'
import ctypes
class Sample(ctypes.Structure):
    _fields_ = [("pid", ctypes.c_uint), ("us", ctypes.c_ulonglong), ("percent", ctypes.c_uint * 4)]
nvml, device, rates = ctypes.CDLL("libnvidia-ml.so.1"), ctypes.c_void_p(), (ctypes.c_uint * 2)()
nvml.nvmlInit_v2(), nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device))
code = nvml.nvmlDeviceGetUtilizationRates(device, rates)
print("  device:", rates[0] if code == 0 else f"N/A ({code})")
all, count = (Sample * 64)(), ctypes.c_uint(64)
code = nvml.nvmlDeviceGetProcessUtilization(device, all, ctypes.byref(count), ctypes.c_ulonglong(0))
print("  processes:", {p.pid: p.percent[0] for p in all[:count.value]} if code == 0 else f"N/A ({code})")
END
    for action in pmon dmon; do
        echo "orion-smi $action:"
        "$built/orion-smi" "$action" --stats "$place/oriond.stats.sock" -c 1 -s um
    done
    python3 -c "import sys, urllib.request as u; print(*(l for l in u.urlopen(sys.argv[1]).read().decode().splitlines()
        if l.startswith('orion_vgpu_busy_ratio{')), sep='\n')" "http://$address/metrics"
    if command -v nvidia-smi >/dev/null; then
        echo "NVIDIA's nvidia-smi, and its pmon:"
        nvidia-smi --query-gpu=utilization.gpu --format=csv,noheader || true
        nvidia-smi pmon -c 1 -s u || true
    fi
}
echo "work 12" >&8
sleep 4
look "one program works, another does not"
# It answers when it has worked.
for ((i = 0; i < 200; i++)); do
    [ "$(wc -l <"$place/busy.said")" -lt 2 ] || break
    sleep 0.2
done
sleep 2
look "both are idle"
grep -hE "WARN|NVML" "$place/log" || true
