"""Works off a file of jobs with a few threads."""

import argparse
import collections
import ctypes
import json
import logging
import os
import queue
import threading

CONFIG = {"threads": 3, "queue": 16, "kernels": {"blur": 9, "sharpen": 5, "edge": 3}, "scale": 0.25}
STOP = object()

log = logging.getLogger("serve")


class Kernels:
    """The library, and its plans by name."""

    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        self.library.plan_create.argtypes = [ctypes.c_int]
        self.library.plan_create.restype = ctypes.c_void_p
        self.library.plan_apply.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_double), ctypes.c_int]
        self.library.plan_apply.restype = ctypes.c_double
        self.library.plan_destroy.argtypes = [ctypes.c_void_p]
        self.lock = threading.Lock()
        self.plans = {}

    def plan(self, name, size):
        key = (name, size)
        with self.lock:
            if key not in self.plans:
                log.info("new plan %s of %d", name, size)
                self.plans[key] = self.library.plan_create(size)
            return self.plans[key]

    def apply(self, name, size, values):
        array = (ctypes.c_double * len(values))(*values)
        return self.library.plan_apply(self.plan(name, size), array, len(values))

    def close(self):
        for plan in self.plans.values():
            self.library.plan_destroy(plan)
        self.plans.clear()


class Worker(threading.Thread):
    def __init__(self, number, jobs, results, kernels):
        super().__init__(name=f"worker-{number}", daemon=True)
        self.jobs = jobs
        self.results = results
        self.kernels = kernels
        self.done = 0

    def run(self):
        while True:
            job = self.jobs.get()
            if job is STOP:
                break
            try:
                self.results.append((job["id"], self.work(job)))
                self.done += 1
            except KeyError as error:
                log.warning("job without %s", error)
            finally:
                self.jobs.task_done()

    def work(self, job):
        size = job.get("size", CONFIG["kernels"].get(job["kernel"], 1))
        values = [value * CONFIG["scale"] for value in job["values"]]
        return self.kernels.apply(job["kernel"], size, values)


def read_jobs(path):
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                log.error("%s:%d: not JSON", path, number)


def report(results):
    counts = collections.Counter(round(value, 1) for _, value in results)
    for value, count in counts.most_common(5):
        print(f"{value:8.1f} {count}")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("jobs")
    parser.add_argument("--threads", type=int, default=CONFIG["threads"])
    options = parser.parse_args()
    logging.basicConfig(level=logging.ERROR, format="%(asctime)s %(message)s")
    kernels = Kernels(os.path.join(os.path.dirname(os.path.abspath(__file__)), "native.so"))
    jobs = queue.Queue(CONFIG["queue"])
    results = []
    workers = [Worker(number, jobs, results, kernels) for number in range(options.threads)]
    for worker in workers:
        worker.start()
    for job in read_jobs(options.jobs):
        jobs.put(job)
    for _ in workers:
        jobs.put(STOP)
    for worker in workers:
        worker.join()
    report(results)
    kernels.close()


if __name__ == "__main__":
    main()
