"""Windows Error Reporting in its forms and languages: what is read, what the rules make of it, and what breaks nothing."""

from __future__ import annotations

import pytest

from necropsy.formats.readers.windows_error_report import READER
from necropsy.model import Crash
from reading import only, pieces, verdict

# https://github.com/python-kasa/python-kasa/issues/515
ENGLISH = r"""
The error appears regardless of the console.

Faulting application name: python.exe, version: 3.11.4150.1013, time stamp: 0x64801a28
Faulting module name: python311.dll, version: 3.11.4150.1013, time stamp: 0x648019dd
Exception code: 0xc0000005
Fault offset: 0x000000000006ba44
Faulting process id: 0x9c1c
Faulting application start time: 0x01d9f03c46905c08
Faulting application path: C:\Users\u\AppData\Local\Programs\Python\Python311\python.exe
Faulting module path: C:\Users\u\AppData\Local\Programs\Python\Python311\python311.dll
Report Id: 0a01845b-026d-46eb-b3e4-da6039209180
Faulting package full name:
Faulting package-relative application ID:
"""
# The form of https://learn.microsoft.com/en-us/answers/questions/1043386, with python.exe for w3wp.exe.
FRENCH = r"""Nom de l’application défaillante python.exe, version : 3.9.7150.1013, horodatage : 0x57899b8a
Nom du module défaillant : ntdll.dll, version : 10.0.14393.5006, horodatage : 0x621ef21b
Code d’exception : 0xc0000374
Décalage d’erreur : 0x00000000000f7143
ID du processus défaillant : 0x1afc
Heure de début de l’application défaillante : 0x01d8dd5895504e12
Chemin d’accès de l’application défaillante : c:\python39\python.exe"""
# https://github.com/knownsec/pocsuite3/issues/54
CHINESE = r"""错误应用程序名称: python.exe，版本: 3.7.3150.1013，时间戳: 0x5cababbb
错误模块名称: python37.dll，版本: 3.7.3150.1013，时间戳: 0x5cabab78
异常代码: 0xc0000005
错误偏移量: 0x0018281a
错误进程 ID: 0x1624
错误应用程序启动时间: 0x01d507fef2991ace
错误应用程序路径: d:\program files (x86)\python37\python.exe
错误模块路径: d:\program files (x86)\python37\python37.dll
报告 ID: 378d56d6-e186-4f59-8eea-007e34f45918"""
# The labels of an Acronis log that quotes the event, behind its own bars.
GERMAN = r"""| Fehler 0x142711: Name der fehlerhaften Anwendung: python.exe, Version: 3.10.1150.1013, Zeitstempel: 0x5bc06a3f
| Name des fehlerhaften Moduls: MSVCR120.dll, Version: 12.0.21005.1, Zeitstempel: 0x524f83ff
| Ausnahmecode: 0xc0000409
| Fehleroffset: 0x0000000000074a30
| ID des fehlerhaften Prozesses: 0x2e0"""
# The labels of discourse.slicer.org threads on a start-up crash.
SPANISH = r"""Nombre de la aplicación con errores: python.exe, versión: 3.8.5150.1013, marca de tiempo: 0x5f17e3fa
Nombre del módulo con errores: _sklearn_tree.pyd, versión: 0.0.0.0, marca de tiempo: 0xb29ecf52
Código de excepción: 0xc00000fd
Desplazamiento de errores: 0x000000000003c43a
Identificador del proceso con errores: 0x5c"""
# The labels of a Russian blog on Citrix' lmadmin.exe; there the module's line lacks a colon.
RUSSIAN = r"""Имя сбойного приложения: python.exe, версия: 3.9.0150.1013, отметка времени: 0x4d6bbff6
Имя сбойного модуля: custom_op.dll, версия: 11.9.0.0, отметка времени 0xcd6bbff6
Код исключения: 0xc0000094
Смещение ошибки: 0x0005e222
Идентификатор сбойного процесса: 0x15e0"""
# int29h.info on 0xc0000409: UCRT's handler of invalid parameters, 32 bits.
JAPANESE = r"""障害が発生しているアプリケーション名: python.exe、バージョン: 3.8.10150.1013、タイム スタンプ: 0x5fa16ece
障害が発生しているモジュール名: ucrtbase.dll、バージョン: 10.0.19041.546、タイム スタンプ: 0x73123758
例外コード: 0xc0000409
障害オフセット: 0x0009d112
障害が発生しているプロセス ID: 0x424c"""
LANGUAGES = {
    "english": (ENGLISH, 0x9C1C, "0xC0000005", "python311.dll", 0x6BA44),
    "french": (FRENCH, 0x1AFC, "0xC0000374", "ntdll.dll", 0xF7143),
    "chinese": (CHINESE, 0x1624, "0xC0000005", "python37.dll", 0x18281A),
    "german": (GERMAN, 0x2E0, "0xC0000409", "MSVCR120.dll", 0x74A30),
    "spanish": (SPANISH, 0x5C, "0xC00000FD", "_sklearn_tree.pyd", 0x3C43A),
    "russian": (RUSSIAN, 0x15E0, "0xC0000094", "custom_op.dll", 0x5E222),
    "japanese": (JAPANESE, 0x424C, "0xC0000409", "ucrtbase.dll", 0x9D112),
}
# https://github.com/parkin/pypore/issues/14: Python 3.5 with TensorFlow 1.4 on Windows 7.
BEX64 = """Problem Event Name: BEX64
  Application Name: pythonw.exe
  Application Version:  3.5.2150.1013
  Application Timestamp:    577be341
  Fault Module Name:    StackHash_1dc2
  Fault Module Version: 0.0.0.0
  Fault Module Timestamp:   00000000
  Exception Offset: 0000000000000000
  Exception Code:   c0000005
  Exception Data:   0000000000000008
  OS Version:   6.1.7601.2.1.0.256.4
  Locale ID:    3081"""
# https://github.com/XX-net/XX-Net/issues/13992
BEX_CHINESE = """问题签名:
  问题事件名称:\tBEX
  应用程序名:\tpython.exe
  应用程序版本:\t3.8.2150.1013
  应用程序时间戳:\t5e55a3ed
  故障模块名称:\tucrtbase.DLL
  故障模块版本:\t10.0.14393.2247
  故障模块时间戳:\t5adc1a6f
  异常偏移:\t00087fd4
  异常代码:\tc0000417
  异常数据:\t00000000
  OS 版本:\t6.1.7601.2.1.0.256.1"""
# https://github.com/fo40225/tensorflow-windows-wheel/issues/144: an abort() on Windows 7.
APPCRASH = """Problem Event Name:\tAPPCRASH
  Application Name:\tpython.exe
  Application Version:\t3.6.8150.1013
  Application Timestamp:\t5c201b63
  Fault Module Name:\tucrtbase.DLL
  Fault Module Version:\t10.0.14393.2990
  Fault Module Timestamp:\t5caeb859
  Exception Code:\t40000015
  Exception Offset:\t000884da
  OS Version:\t6.1.7601.2.1.0.256.48
  Locale ID:\t1033"""
# Event 1001; the values are those of a public WER BEX64 of ucrtbase.dll 10.0.19041.3636 with P9 = 7.
NUMBERED = """Fault bucket 1197611272464088796, type 4
Event Name: BEX64
Response: Not available
Cab Id: 0

Problem signature:
P1: python.exe
P2: 3.9.7150.1013
P3: 612d5b2e
P4: ucrtbase.dll
P5: 10.0.19041.3636
P6: 81cf5d89
P7: 000000000007286e
P8: c0000409
P9: 0000000000000007
P10:

Attached files:"""
# Keys and their order as in several published Report.wer files.
REPORT_WER = r"""Version=1
EventType=APPCRASH
EventTime=133721760000000000
ReportType=2
NsAppName=python.exe
Sig[0].Name=應用程式名稱
Sig[0].Value=python.exe
Sig[1].Value=3.12.4150.1013
Sig[2].Value=66f2a1b3
Sig[3].Value=KERNELBASE.dll
Sig[4].Value=10.0.26100.4351
Sig[5].Value=6c6bd922
Sig[6].Name=例外狀況代碼
Sig[6].Value=e06d7363
Sig[7].Value=00000000000c7f7a
DynamicSig[1].Name=OS Version
DynamicSig[1].Value=10.0.26100.2.0.0.256.48"""
# An event that a user of text-generation-webui exported.
XML = r"""  <EventData>
    <Data Name="AppName">python.exe</Data>
    <Data Name="AppVersion">3.12.10150.1013</Data>
    <Data Name="AppTimeStamp">67f515a7</Data>
    <Data Name="ModuleName">amdhip64_7.dll</Data>
    <Data Name="ModuleVersion">10.0.3581.0</Data>
    <Data Name="ModuleTimeStamp">69198ccb</Data>
    <Data Name="ExceptionCode">c0000005</Data>
    <Data Name="FaultingOffset">00000000002ab8ba</Data>
    <Data Name="ProcessId">0x3560</Data>
    <Data Name="ProcessCreationTime">0x1dc8b3a7b7f1c4e</Data>
    <Data Name="AppPath">C:\Python312\python.exe</Data>
    <Data Name="PackageFullName">
    </Data>
  </EventData>
</Event>"""
XML_OLD = (
    "<EventData><Data>python.exe</Data><Data>2.7.3150.1013</Data><Data>52836a29</Data>"
    "<Data>op.pyd</Data><Data>1.0.0.1</Data><Data>52836a29</Data><Data>c000001d</Data><Data>00141b3a</Data>"
    "<Data>a54</Data><Data>01d08570f02228aa</Data></EventData>"
)
# Event 1026, the form of a public one of mmc.exe.
MANAGED = """Application: python.exe
Framework Version: v4.0.30319
Description: The process was terminated due to an unhandled exception.
Exception Info: exception code c0000005, exception address 00007FFF00DB34BD
Stack:"""
SAMPLES = [ENGLISH, FRENCH, CHINESE, GERMAN, SPANISH, RUSSIAN, JAPANESE, BEX64, BEX_CHINESE, APPCRASH, NUMBERED]
SAMPLES += [REPORT_WER, XML, XML_OLD, MANAGED]


def place(crash: Crash) -> tuple[str | None, int | None]:
    assert crash.crashed_thread is not None
    assert crash.crashed_thread.frames is not None
    frame = crash.crashed_thread.frames[0]
    assert frame.found_by == "text"
    return frame.module, frame.module_offset


def status(crash: Crash) -> tuple[str | None, int | None]:
    assert crash.exit is not None
    assert crash.exit.ntstatus is not None
    assert crash.exit.code == crash.exit.ntstatus.signed < 0 or crash.exit.ntstatus.value == "0x40000015"
    return crash.exit.ntstatus.value, crash.exit.ntstatus.fast_fail.code if crash.exit.ntstatus.fast_fail else None


@pytest.mark.parametrize("language", LANGUAGES)
def test_event_1000_in_any_language(language: str) -> None:
    text, pid, code, module, offset = LANGUAGES[language]
    crash = only(text, READER)
    assert crash.pid == pid
    assert status(crash)[0] == code
    assert place(crash) == (module, offset)
    assert crash.environment is not None
    assert crash.environment.platform == "Windows"


def test_the_lines_of_an_event() -> None:
    (piece,) = pieces(ENGLISH, READER)
    assert (piece.first, piece.last) == (4, 11)


def test_event_in_one_line() -> None:
    assert place(only(ENGLISH.replace("\n", " "), READER)) == ("python311.dll", 0x6BA44)


def test_version_of_python_is_read_from_the_version_of_its_program() -> None:
    environment = only(ENGLISH, READER).environment
    assert environment is not None
    assert environment.python == "3.11.4"
    assert environment.executable == r"C:\Users\u\AppData\Local\Programs\Python\Python311\python.exe"


def test_two_events_are_two() -> None:
    first, second = pieces(ENGLISH + CHINESE, READER)
    assert (place(first.crash)[0], place(second.crash)[0]) == ("python311.dll", "python37.dll")


@pytest.mark.parametrize(
    ("text", "code", "subcode", "module", "offset"),
    [
        (BEX_CHINESE, "0xC0000417", None, "ucrtbase.DLL", 0x87FD4),
        (APPCRASH, "0x40000015", None, "ucrtbase.DLL", 0x884DA),
        (NUMBERED, "0xC0000409", 7, "ucrtbase.dll", 0x7286E),
        (REPORT_WER, "0xE06D7363", None, "KERNELBASE.dll", 0xC7F7A),
        (XML, "0xC0000005", None, "amdhip64_7.dll", 0x2AB8BA),
        (XML_OLD, "0xC000001D", None, "op.pyd", 0x141B3A),
    ],
)
def test_signatures(text: str, code: str, subcode: int | None, module: str, offset: int) -> None:
    crash = only(text, READER)
    assert status(crash) == (code, subcode)
    assert place(crash) == (module, offset)


def test_code_and_offset_change_places_with_the_kind_of_event() -> None:
    appcrash = NUMBERED.replace("BEX64", "APPCRASH").replace("P7: 000000000007286e", "P7: c0000005")
    crash = only(appcrash.replace("P8: c0000409", "P8: 000000000007286e"), READER)
    assert status(crash) == ("0xC0000005", None), "P9 of APPCRASH is no subcode"
    assert place(crash) == ("ucrtbase.dll", 0x7286E)


def test_program_counter_in_no_module() -> None:
    crash = only(BEX64, READER)
    assert crash.fault is not None
    assert (crash.fault.signal, crash.fault.access, crash.fault.address) == ("SIGSEGV", "exec", 0)


def test_managed_code_below_which_native_code_crashed() -> None:
    crash = only(MANAGED, READER)
    assert status(crash)[0] == "0xC0000005"
    assert crash.crashed_thread is not None
    assert crash.crashed_thread.frames is not None
    assert crash.crashed_thread.frames[0].address == 0x7FFF00DB34BD


def test_abort_of_ucrt_is_known_by_its_offset() -> None:
    text = JAPANESE.replace("0x0009d112", "0x000000000007286e")
    assert status(only(text, READER)) == ("0xC0000409", 7)
    other = text.replace("10.0.19041.546", "10.0.22621.2506")
    assert status(only(other, READER)) == ("0xC0000409", None), "another version has something else there"


@pytest.mark.parametrize(
    ("text", "rule", "module", "said"),
    [
        (ENGLISH, "invalid-read", "python311.dll", "python311.dll"),
        (FRENCH, "heap-corruption", None, "heap is corrupt"),
        (SPANISH, "stack-overflow-recursion", "_sklearn_tree.pyd", "stack"),
        (RUSSIAN, "integer-divide-by-zero", "custom_op.dll", "divided"),
        (BEX64, "bad-jump", None, "null pointer"),
        (APPCRASH, "abort", None, "abort()"),
        (NUMBERED, "abort", None, "abort()"),
        (REPORT_WER, "uncaught-cpp-exception", None, "C++ exception"),
        (XML, "invalid-read", "amdhip64_7.dll", "amdhip64_7.dll"),
        (XML_OLD, "illegal-instruction", "op.pyd", "does not know"),
        (NUMBERED.replace("P9: 0000000000000007", "P9: 0000000000000002"), "stack-smash", None, "past the end"),
    ],
)
def test_verdict(text: str, rule: str, module: str | None, said: str) -> None:
    found = verdict(text, READER)
    assert found.rule == rule
    assert said in found.summary
    assert (found.culprit.module if found.culprit else None) == module


def test_what_the_program_said_explains_its_abort() -> None:
    log = "2026-11-20 21:17:51.617250: F tensorflow/core/framework/tensor_shape.cc:356] Check failed: d < dims() (3 vs. 2)\n"
    found = verdict(log + NUMBERED, READER)
    assert (found.rule, found.confidence) == ("check-failed", "certain")


@pytest.mark.parametrize(
    "text",
    [
        "Process finished with exit code -1073741819 (0xC0000005)",
        "The status APPCRASH is listed in the table below.",
        "Event Name: APPCRASH",
        "error 0xc0000005 occurred, version 1.2.3.4, build 0x12345678",
        "Faulting application name: ",
        "See https://learn.microsoft.com: 0xc0000409 means stack buffer overrun",
    ],
)
def test_what_is_no_report(text: str) -> None:
    assert pieces(text, READER) == []
