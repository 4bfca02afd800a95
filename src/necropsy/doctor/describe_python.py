# Run by the interpreter that is examined, any Python from 3.6 on: it prints one line of JSON about itself.
# It may stand in a folder of the user's with modules of any name, so that nothing is imported from there.
import sys

path = list(sys.path)
base = getattr(sys, "base_prefix", sys.prefix)
sys.path[:] = [one for one in path if one.startswith((base, sys.prefix)) and "-packages" not in one]

import importlib.machinery
import json
import os
import sysconfig

working = None
try:
    working = os.getcwd()
except OSError:
    pass

version = "%d.%d.%d" % sys.version_info[:3]
full = version
if sys.version_info[3] != "final":
    full += sys.version_info[3][0] + str(sys.version_info[4])


def of_implementation() -> str:
    info = sys.implementation.version
    kind = info.releaselevel
    return "%d.%d.%d" % info[:3] + ("" if kind == "final" else kind[0] + str(info.serial))


def libc() -> object:
    try:
        return os.confstr("CS_GNU_LIBC_VERSION")
    except (AttributeError, ValueError, OSError):
        return None


if os.name == "nt":
    import platform

    system, release, build, machine = platform.system(), platform.release(), platform.version(), platform.machine()
else:
    system, _, release, build, machine = os.uname()  # platform.uname of old versions starts programs

user_site = None
site = sys.modules.get("site")
if site is not None and getattr(site, "ENABLE_USER_SITE", False):
    user_site = site.getusersitepackages()

python_path = []
if not sys.flags.ignore_environment:
    python_path = [one for one in os.environ.get("PYTHONPATH", "").split(os.pathsep) if one]

standard = sysconfig.get_paths()["stdlib"]
print(
    "\n@MARK@"
    + json.dumps(
        {
            "executable": sys.executable or None,
            "version": version,
            "implementation": sys.implementation.name,
            "prefix": sys.prefix,
            "base_prefix": base,
            "machine": machine,
            "system": sys.platform,
            "libc": libc(),
            "soabi": sysconfig.get_config_var("SOABI"),
            "suffixes": importlib.machinery.EXTENSION_SUFFIXES,
            "free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
            "path": path,
            "python_path": python_path,
            "user_site": user_site,
            "working_directory": working,
            "conda": os.path.isdir(os.path.join(sys.prefix, "conda-meta")),
            "externally_managed": base == sys.prefix and os.path.exists(os.path.join(standard, "EXTERNALLY-MANAGED")),
            "markers": {
                "implementation_name": sys.implementation.name,
                "implementation_version": of_implementation(),
                "os_name": os.name,
                "platform_machine": machine,
                "platform_python_implementation": {"cpython": "CPython", "pypy": "PyPy"}.get(
                    sys.implementation.name, sys.implementation.name
                ),
                "platform_release": release,
                "platform_system": system,
                "platform_version": build,
                "python_full_version": full,
                "python_version": "%d.%d" % sys.version_info[:2],
                "sys_platform": sys.platform,
            },
        }
    )
)
