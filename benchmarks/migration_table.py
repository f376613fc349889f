"""What `memstrata bench migration` has found, as a table."""

from __future__ import annotations

from benchmarks.migration_load import FAULTS
from serve_app.client.http import Json
from serve_app.client.scores import DEPTHS


def table(result: Json) -> str:
    version = result["version"] or "-"
    lines = [
        f"{result['data']}: {result['turns']} turns; {', '.join(result['base'] or [])} → {version}: {result['state']}",
        "",
    ]
    lines += [f"  {step['at_s']:>8.1f} s  {step['state']}" for step in result["steps"]]
    lines += [f"  {step['state']}: {step['why']}" for step in result["why"]]
    lines += [f"  gate of {gate['state']}: {gate['verdict']} {'; '.join(gate['reasons'])}" for gate in result["gates"]]
    lines += ["", f"{'':<14}" + "".join(f"{'@' + str(depth):>8}" for depth in DEPTHS)]
    for name in ("before", "after", "back"):
        if name in result:
            lines.append(f"{name:<14}" + "".join(f"{result[name][f'recall@{depth}']:>8.3f}" for depth in DEPTHS))
    if result["backfill"]:
        lines.append("backfill: " + ", ".join(f"{name} {one}" for name, one in result["backfill"].items()))
    load = result["load"]
    sent = ", ".join(f"{count} {name}" for name, count in sorted(load["requests"].items()))
    lines += ["", f"requests: {sent}; {load['sent_away']} sent away; searches p95 {load['search_ms']['p95']} ms"]
    lines.append(f"scores made anew: {load['checked']}, the worst {load['off_max']} off; by version {load['versions']}")
    for name in ("contexts_after", "contexts_back"):
        if name in result:
            lines.append(f"{name}: {result[name]['same']} of {result[name]['contexts']} the same to the byte")
    lines += [f"{kind:<14}{result[kind]:>8}  (bar 0)" for kind in FAULTS]
    lines += [f"  {kind}: {one}" for kind, told in result["examples"].items() for one in told[:3]]
    return "\n".join(line.rstrip() for line in lines)
