"""Failures in the language of the window: a title and advice by kind; details stay as they are."""

from __future__ import annotations

from dataclasses import dataclass

from PySide6.QtCore import QCoreApplication

from app.events import ErrorReport, Notice

translate = QCoreApplication.translate


@dataclass(frozen=True, slots=True)
class ErrorWords:
    """title: what happened. advice: what to do, "" where there is nothing. said: the message."""

    title: str
    advice: str
    said: str


def words_of(report: ErrorReport) -> ErrorWords:
    """Return how to speak of a failure; the message itself is the title of an unknown kind."""
    title, advice = _by_kind(report.kind)
    if not title:
        return ErrorWords(report.message, "", "")
    return ErrorWords(title, advice, report.message)


def short_words(kind: str, message: str) -> str:
    """Return one sentence or two, for a line in the chat or at the foot of the window.

    message: what a report says, in English; used where the kind is unknown.
    """
    title, advice = _by_kind(kind)
    space = "" if title.endswith("。") else " "
    return f"{title}{space}{advice}".strip() if title else message


def notice_words(notice: Notice) -> str:
    """Return a notice in the language of the window."""
    known = {
        "kv_recreated": translate(
            "errors",
            "The store of what models have read was damaged and was begun anew. Your "
            "conversations are safe; they are read again when they go on.",
        ),
        "kv_not_kept": translate(
            "errors", "What models read is not being kept on disk now: {0}"
        ).format(notice.message),
        "chats_damaged": translate(
            "errors",
            "The file of your conversations was damaged. What could be read was saved into a new "
            "one; the old file was set aside.",
        ),
    }
    return known.get(notice.kind, notice.message)


def _by_kind(kind: str) -> tuple[str, str]:
    """Return title and advice of a kind; ("", "") of an unknown one."""
    return (
        _of_models().get(kind)
        or _of_conversations().get(kind)
        or _of_sharing().get(kind)
        or _of_files().get(kind, ("", ""))
    )


def _of_models() -> dict[str, tuple[str, str]]:
    return {
        "ModelFileError": (
            translate("errors", "The model file is damaged or incomplete."),
            translate("errors", "Download it again, or choose another one."),
        ),
        "UnsupportedModelError": (
            translate("errors", "This kind of model cannot be run yet."),
            translate("errors", "Choose another one; the details name what is missing."),
        ),
        "TokenizerError": (
            translate("errors", "The vocabulary in the model file cannot be used."),
            translate("errors", "Choose another file of this model."),
        ),
        "ChatTemplateError": (
            translate("errors", "The model's chat template cannot show this conversation."),
            translate("errors", "Another model, or a conversation without instructions, may work."),
        ),
        "OutOfMemoryError": (
            translate("errors", "There is not enough memory for this."),
            translate("errors", "A smaller model, a shorter context or a larger budget helps."),
        ),
        "MemoryError": (
            translate("errors", "There is not enough memory for this."),
            translate("errors", "A smaller model, a shorter context or a larger budget helps."),
        ),
        "CodecRefusedError": (
            translate("errors", "This memory precision loses too much on this model."),
            translate("errors", "Choose 16-bit, or insist on it in the settings."),
        ),
    }


def _of_conversations() -> dict[str, tuple[str, str]]:
    return {
        "ContextOverflowError": (
            translate("errors", "This does not fit into what the model can see at once."),
            translate("errors", "Shorten the message, or choose a longer context in the settings."),
        ),
        "SnapshotError": (
            translate("errors", "What was kept of this conversation cannot be used."),
            translate("errors", "It is read again; nothing is lost."),
        ),
        "NotFoundError": (
            translate("errors", "This is no longer there."),
            translate("errors", "It may have been deleted."),
        ),
        "NotRun": (
            translate("errors", "The reply was not begun."),
            translate("errors", "Load a model and try again."),
        ),
        "ImportFormatError": (
            translate("errors", "This file cannot be imported."),
            translate("errors", "It is damaged, or of a format that is not known."),
        ),
        "ExportError": (
            translate("errors", "The export cannot be written."),
            translate("errors", "Choose another folder, or make room on the disk."),
        ),
    }


def _of_sharing() -> dict[str, tuple[str, str]]:
    return {
        "SharedAddressError": (
            translate("errors", "This is no address of a PostgreSQL server."),
            translate("errors", "It reads postgresql://user:password@host/database."),
        ),
        "SharedDriverMissingError": (
            translate("errors", "psycopg, which talks to the server, is not installed."),
            translate("errors", "Install it: python -m pip install 'psycopg[binary]'"),
        ),
        "SharedUnreachableError": (
            translate("errors", "The shared store cannot be reached."),
            translate("errors", "Chats go on as without it; it is tried again by itself."),
        ),
        "SharedRefusedError": (
            translate("errors", "The shared store does not let us in."),
            translate("errors", "Check user, password and sslmode in its address."),
        ),
        "SharedUnusableError": (
            translate("errors", "The shared store answers, but cannot be used."),
            translate("errors", "Is the database there, has it room, may its user create tables?"),
        ),
    }


def _of_files() -> dict[str, tuple[str, str]]:
    return {
        "StoreError": (
            translate("errors", "What models have read cannot be stored."),
            translate("errors", "Conversations go on; they are read again after a restart."),
        ),
        "DatabaseDamagedError": (
            translate("errors", "The file of your conversations is damaged."),
            translate("errors", "What can be read is saved into a new one at the next start."),
        ),
        "DatabaseBusyError": (
            translate("errors", "Another program uses the file of your conversations."),
            translate("errors", "Close it and try again."),
        ),
        "DatabaseFullError": (
            translate("errors", "The disk is full."),
            translate("errors", "Make room and try again."),
        ),
        "DatabaseUnavailableError": (
            translate("errors", "The file of your conversations cannot be opened."),
            translate("errors", "Check the disk and the rights of its folder."),
        ),
        "StoreTooNewError": (
            translate("errors", "Your conversations were last opened by a newer version."),
            translate("errors", "Update Reprise; nothing has been changed."),
        ),
        "SettingsError": (
            translate("errors", "A setting is out of its range."),
            translate("errors", "The details name it."),
        ),
        "HomeUnusableError": (
            translate("errors", "Reprise cannot write to the folder of its data."),
            translate("errors", "Make room on the disk, or check the rights of the folder."),
        ),
        "FileNotFoundError": (
            translate("errors", "The file is no longer there."),
            translate("errors", "It may have been moved or deleted."),
        ),
        "PermissionError": (
            translate("errors", "The file may not be opened."),
            translate("errors", "Check the rights of its folder."),
        ),
        "OSError": (
            translate("errors", "The file cannot be used."),
            translate("errors", "Check the disk it lies on."),
        ),
    }
