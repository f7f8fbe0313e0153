"""XLA's planes as spans: those of a GPU as XLA names them, those of this machine as it really writes them."""

from types import SimpleNamespace as Plane

import jax
import jax.numpy as jnp

from jax_impl.profile import Profiler, found
from spec.trace import DeviceSpan, HostSpan, TracedStep


def event(name: str, start_ns: float, duration_ns: float, **stats: object) -> Plane:
    return Plane(name=name, start_ns=start_ns, duration_ns=duration_ns, stats=list(stats.items()))


PLANES = [
    Plane(
        name="/host:CPU",
        lines=[
            Plane(
                name="python",
                events=[
                    event("parity_step 6", 3000.0, 500.0),
                    event("parity_step 5", 1000.0, 500.0),
                    event("PjitFunction(step)", 1100.0, 300.0),
                    event("cuGraphLaunch", 1200.0, 50.0, correlation_id=41),
                    event("end: fusion", 1300.0, 2.0),
                ],
            ),
            Plane(name="tf_XLA/1", events=[event("ThreadpoolListener::Record", 1000.0, 5.0)]),
        ],
    ),
    Plane(
        name="/device:GPU:0",
        lines=[
            Plane(
                name="Stream #13(Compute,MemcpyD2D)",
                events=[
                    event("fusion_3", 1400.0, 100.0, correlation_id=41),
                    event("ncclDevKernel_AllReduce", 1500.0, 20.0, correlation_id=41),
                    event("MemcpyD2D", 1600.0, 10.0, correlation_id=42),
                ],
            ),
            Plane(name="XLA Ops", events=[event("fusion_3", 1400.0, 100.0)]),
        ],
    ),
    Plane(name="Task Environment", lines=[]),
]


def test_planes_of_a_gpu_become_spans() -> None:
    spans = found(PLANES, "why")
    assert (spans.instrument, spans.reason) == ("jax.profiler", "why")
    assert spans.steps == (TracedStep(5, 1.0, 1.5), TracedStep(6, 3.0, 3.5))
    assert spans.host == (
        HostSpan("PjitFunction(step)", 1.1, 0.3, "other", 0),
        HostSpan("cuGraphLaunch", 1.2, 0.05, "launch", 0, 41),
    )
    assert spans.device == (
        DeviceSpan("fusion_3", 1.4, 0.1, "kernel", 0, 13, 41),
        DeviceSpan("ncclDevKernel_AllReduce", 1.5, 0.02, "collective", 0, 13, 41),
        DeviceSpan("MemcpyD2D", 1.6, 0.01, "memcpy", 0, 13, 42),
    )


def test_what_runs_here_is_seen_inside_its_step() -> None:
    double = jax.jit(lambda x: x + x)
    values = jax.block_until_ready(double(jnp.ones(8)))
    profiler = Profiler("a test")
    profiler.start()
    for number in (3, 4):
        with profiler.step(number):
            values = double(values)
    jax.block_until_ready(values)
    spans = profiler.stop()
    assert [step.number for step in spans.steps] == [3, 4]
    for step in spans.steps:
        names = [s.name for s in spans.host if step.begin_us <= s.begin_us <= step.end_us]
        assert any("PjitFunction" in name for name in names)
    assert spans.device == ()
