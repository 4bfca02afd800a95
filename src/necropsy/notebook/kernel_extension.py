# The kernel's IPython runs this file when it starts (IPKernelApp.exec_files), in any version of Python, where necropsy
# need not be installed. It notes in a map that is shared with `companion` which cell runs, and shows why the kernel
# before this one died. It leaves nothing in the user's namespace, not even a docstring.


def _necropsy() -> None:
    import json
    import mmap
    import os
    import struct
    from typing import Any

    shell = get_ipython()  # type: ignore[name-defined] # noqa: F821 - IPython's
    kernel = shell.kernel
    application = kernel.parent
    number, _, death = os.environ.pop("NECROPSY_NOTEBOOK").partition(":")
    shared = mmap.mmap(int(number), 0)
    os.close(int(number))
    pid = os.getpid()
    first = 32
    # Where the record of the running cell is (0: none runs), the end of all records, 1 once Jupyter asked for the end.
    words = struct.Struct("=QQQ")
    length = struct.Struct("=I")

    def users_own_files() -> None:
        """The command line has replaced the files that the user's configuration names: append them."""
        for path in getattr(application, "loaded_config_files", ()):
            with open(path, encoding="utf-8", errors="replace") as file:
                if "exec_files" not in file.read():
                    continue
            from traitlets.config.loader import JSONFileConfigLoader, PyFileConfigLoader

            loader = JSONFileConfigLoader if path.endswith(".json") else PyFileConfigLoader
            loaded = loader(os.path.basename(path), path=os.path.dirname(path)).load_config()
            for section in ("IPKernelApp", "InteractiveShellApp"):
                for name in loaded.get(section, {}).get("exec_files", ()):
                    if name not in application.exec_files:
                        application.exec_files.append(name)

    def note(running: int, end: int, asked: int = 0) -> None:
        words.pack_into(shared, 0, running, end, asked)

    end_kernel = kernel.do_shutdown

    def do_shutdown(*args: Any, **kwargs: Any) -> Any:
        running, end, _ = words.unpack_from(shared)
        note(running, end, 1)
        return end_kernel(*args, **kwargs)

    def parent_header() -> Any:
        parent = kernel.get_parent("shell") if hasattr(kernel, "get_parent") else kernel._parent_header
        return (parent or {}).get("header", {})

    # IPython counts on before or after a cell, depending on its version: the number is the one from before.
    number_of_next = [shell.execution_count]

    def before(info: Any) -> None:
        if os.getpid() != pid:
            return
        try:
            show_death()
            record = {"count": number_of_next[0], "code": info.raw_cell[:1000000], "header": parent_header()}
            data = json.dumps(record, default=str).encode("utf-8", "replace")
            end = words.unpack_from(shared)[1] or first
            if end + length.size + len(data) > len(shared):
                end = first  # the records of the first cells are overwritten
            if end + length.size + len(data) > len(shared):
                return
            note(0, end)
            length.pack_into(shared, end, len(data))
            shared[end + length.size : end + length.size + len(data)] = data
            note(end, end + length.size + len(data))
        except Exception:
            pass

    def after(_result: Any = None) -> None:
        if os.getpid() == pid:
            number_of_next[0] = shell.execution_count
            note(0, words.unpack_from(shared)[1])

    shown: Any = []

    def show_death() -> None:
        if shown:
            return
        shown.append(True)
        try:
            with open(death, encoding="utf-8") as file:
                record = json.load(file)
        except (OSError, ValueError):
            return
        if not record["shown"]:
            shell.display_pub.publish({"text/plain": record["text"]}, {})
            with open(death + ".part", "w", encoding="utf-8") as file:
                json.dump(dict(record, shown=True), file)
            os.replace(death + ".part", death)

    shell.events.register("pre_run_cell", before)
    shell.events.register("post_run_cell", after)
    kernel.do_shutdown = do_shutdown
    users_own_files()


try:
    _necropsy()
except Exception:
    pass
del _necropsy
