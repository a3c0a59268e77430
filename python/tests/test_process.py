"""Threads, forks, signals, exits and other libraries in one process. Each case that may end a process has its own."""

import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gradloom
import numpy as np
import pytest


def run_program(text: str, **options: Any) -> subprocess.CompletedProcess[str]:
    head = "import os; os.environ['GRADLOOM_CACHE_DIR'] = 'off'\n"
    lines = text.splitlines()
    indent = min(len(line) - len(line.lstrip()) for line in lines if line.strip())
    program = head + "\n".join(line[indent:] for line in lines)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, **options)


def embedding(rows: int, tokens: int, width: int = 64) -> tuple[Any, ...]:
    rng = np.random.default_rng(rows)
    return np.array([rows, width]), rng.integers(rows, size=tokens), rng.normal(size=(tokens, width))


def test_8_threads_get_the_same_bits() -> None:
    runtime = gradloom.Runtime(specialise_after=3, disk_cache="off")
    calls = [embedding(50 + i, 300 + 10 * i) for i in range(8)]
    want = [runtime.run("GatherGrad", call) for call in calls]

    def work(worker: int) -> int:
        for i in range(60):
            k = (worker + i) % len(calls)
            assert np.array_equal(runtime.run("GatherGrad", calls[k]), want[k])
            if i % 10 == worker:
                with pytest.raises(gradloom.OutOfRange):
                    runtime.run("GatherGrad", (calls[k][0], calls[k][1] + 1000, calls[k][2]))
        return worker

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(work, range(8))) == list(range(8))
    runtime.wait_for_background()
    assert runtime.stats()["specialised"] > 0


def test_the_lock_is_released_while_a_call_computes() -> None:
    call = np.broadcast_to(np.float32(1), (1 << 14, 1 << 14)), [1]
    gradloom.run("BroadcastGrad", (np.ones((2, 2), np.float32), [1]))
    counted, stop = [0], threading.Event()

    def count() -> None:
        while not stop.is_set():
            counted[0] += 1
            time.sleep(0.001)

    # The interpreter switches threads only where one waits: were the lock held by the call, nothing would be counted.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(100)
    thread = threading.Thread(target=count)
    thread.start()
    try:
        before = counted[0]
        assert gradloom.run("BroadcastGrad", call)[0] == 1 << 28
        after = counted[0]
    finally:
        sys.setswitchinterval(interval)
        stop.set()
        thread.join()
    assert after > before


def test_a_forked_child_uses_its_parents_runtime() -> None:
    done = run_program("""
        import multiprocessing, threading
        import gradloom, numpy as np

        runtime = gradloom.Runtime(specialise_after=2)
        call = [np.array([100, 8]), np.arange(100) % 7, np.ones((100, 8), np.float32)]
        handle = runtime.prepare("GatherGrad")

        def work(seed):
            return float(runtime.run("GatherGrad", call)[0, 0] + handle(*call)[6, 0]
                         + gradloom.gather_grad([seed + 9, 8], call[1], call[2])[1, 1])

        if __name__ == "__main__":
            want = work(0)
            stop = threading.Event()
            busy = threading.Thread(target=lambda: [work(i % 5) for i in iter(stop.is_set, True)])
            busy.start()
            for _ in range(3):
                with multiprocessing.get_context("fork").Pool(4) as pool:
                    assert pool.map(work, range(8)) == [want] * 8
            stop.set(), busy.join()
            print("done", want)
    """)
    assert done.stdout == "done 44.0\n", done.stderr


def test_ctrl_c_ends_a_loop_of_calls() -> None:
    done = run_program("""
        import os, signal, threading
        import gradloom, numpy as np
        call = [np.broadcast_to(np.float32(1), (4096, 4096)), [1]]
        gradloom.run("BroadcastGrad", call)
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell in the background ignores it
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        try:
            while True:
                gradloom.run("BroadcastGrad", call)
        except KeyboardInterrupt:
            assert gradloom.run("BroadcastGrad", call)[0] == 1 << 24
            print("interrupted")
    """)
    assert done.stdout == "interrupted\n", done.stderr


def test_exit_during_background_compiles() -> None:
    started = time.monotonic()
    done = run_program("""
        import gradloom, numpy as np
        runtime = gradloom.Runtime(specialise_after=1, specialisations=64)
        for width in range(1, 40):
            dY = np.ones((3, width), np.float32)
            for _ in range(3):
                gradloom.gather_grad([4, width], [0, 1, 2], dY, runtime=runtime)
                gradloom.gather_grad([4, width], [0, 1, 2], dY)
        print("exit")
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "exit\n", "")
    assert time.monotonic() - started < 30


@pytest.mark.parametrize("end", ["pass", "sys.exit(0)", "raise SystemExit"])
def test_exit_while_daemon_threads_call(end: str) -> None:
    for _ in range(5):
        done = run_program(f"""
            import sys, threading, time
            import gradloom, numpy as np
            def work():
                width = 1
                while True:
                    width = width % 300 + 1
                    gradloom.gather_grad([4, width], [0, 1, 2], np.ones((3, width), np.float32), policy="specialise")
            for _ in range(4): threading.Thread(target=work, daemon=True).start()
            time.sleep(0.1)
            print("exit", flush=True)
            {end}
        """)
        assert (done.returncode, done.stdout, done.stderr) == (0, "exit\n", "")


def test_the_log_at_exit() -> None:
    done = run_program("""
        import atexit, logging, sys

        def last():  # registered first, it runs after gradloom's own
            warn()
            print("ran at exit", flush=True)

        atexit.register(last)
        import gradloom, numpy as np
        call = [[4, 2], [0], np.ones((1, 2), np.float32)]

        def warn():
            gradloom.Runtime(disk_cache="/dev/null/x", policy="specialise").run("GatherGrad", call)

        logging.basicConfig(stream=sys.stdout, format="%(name)s %(levelname)s %(message).5s")
        gradloom.set_log_level("warn")
        warn()
    """)
    assert done.returncode == 0, done.stderr
    out = done.stdout.splitlines()
    assert out[0].startswith("gradloom WARNING ") and out[-1] == "ran at exit"
    assert done.stderr.startswith("gradloom warn: ")


def test_a_log_handler_that_calls_gradloom() -> None:
    done = run_program("""
        import logging
        import gradloom, numpy as np
        call = [[4, 2], [0], np.ones((1, 2), np.float32)]
        class Handler(logging.Handler):
            def emit(self, record):
                gradloom.Runtime(disk_cache="/dev/null/x", policy="specialise").run("GatherGrad", call)
                raise RuntimeError("a handler's fault")
        logging.getLogger("gradloom").addHandler(Handler())
        gradloom.set_log_level("warn")
        logging.raiseExceptions = False
        out = gradloom.Runtime(disk_cache="/dev/null/x", policy="specialise").run("GatherGrad", call)
        print(out[0, 0])
    """)
    assert done.returncode == 0 and done.stdout == "1.0\n", done.stderr


def test_a_sub_interpreter_is_refused() -> None:
    done = run_program("""
        try:
            import _interpreters as interpreters
        except ImportError:
            import _xxsubinterpreters as interpreters
        import gradloom
        made = interpreters.create()
        code = '''if True:
            try:
                import gradloom
            except ImportError as error:
                assert "interpreter" in str(error), error
            else:
                raise SystemExit("imported")
            print("refused", flush=True)
        '''
        failure = interpreters.run_string(made, code)
        assert failure is None, failure
        interpreters.destroy(made)
        import array
        assert len(gradloom.broadcast_grad(array.array("f", [1, 2, 4]), [1])) == 1  # the main one is as it was
    """)
    assert (done.returncode, done.stdout) == (0, "refused\n"), done.stderr


def test_import_is_fast_and_takes_no_torch() -> None:
    done = run_program("""
        import sys, time
        start = time.perf_counter()
        import gradloom
        took = time.perf_counter() - start
        assert "torch" not in sys.modules and "numpy" not in sys.modules
        print(took < 0.3)
    """)
    assert done.stdout == "True\n", done.stderr


def test_a_child_of_fork_ends_while_the_parents_threads_call() -> None:
    done = run_program("""
        import os, sys, threading
        import gradloom, numpy as np
        x = np.ones((3, 3), np.float32)
        handle = gradloom.prepare("BroadcastGrad")
        handle(x, [3])
        def call():
            while True:
                handle(x, [3])
        for _ in range(4):
            threading.Thread(target=call, daemon=True).start()
        for k in range(10):
            sum(range(20000))
            child = os.fork()
            if child == 0:
                sys.exit(0)
            os.waitpid(child, 0)
        print("ended", flush=True)
    """)
    assert (done.returncode, done.stdout) == (0, "ended\n"), done.stderr
