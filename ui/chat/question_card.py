"""What to do about a full context, in the place of the reply: each choice with what it costs."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtWidgets import (
    QCheckBox,
    QHBoxLayout,
    QLabel,
    QPushButton,
    QSizePolicy,
    QVBoxLayout,
    QWidget,
)

from app.conversation import ContextChoice, MessageStatus
from ui.chat.context_words import choice_words, policy_name, question_words
from ui.chat.look import Look
from ui.chat.message_model import Row
from ui.chat.parts import RoundedField, quiet_label

START_OVER, CANCEL = "start_over", "cancel"


class QuestionCard(RoundedField):
    """Nothing has happened yet while it is on screen.

    answered: a policy, START_OVER or CANCEL, and whether a policy is to be the rule from now on.
    """

    answered = Signal(str, bool)

    def __init__(self, look: Look, parent: QWidget | None = None) -> None:
        super().__init__(look, parent, fill="raised", outline="hairline", radius=10)
        self._title = self._heading()
        self._words = quiet_label(look, role="muted", parent=self)
        self._words.setWordWrap(True)
        self._choices: list[ChoiceButton] = []
        self._list = QVBoxLayout()
        self._list.setSpacing(look.px(6))
        self._always = QCheckBox(self.tr("Do this from now on"), self)
        self._always.setStyleSheet(f"font-size: {look.px(13)}px; color: {look.theme.text};")
        self._over = self._link(self.tr("New conversation"), START_OVER)
        self._over.setToolTip(self.tr("Asks this in a new conversation with the same instructions"))
        self._cancel = self._link(self.tr("Cancel"), CANCEL)
        self._cancel.setToolTip(self.tr("Takes the message back"))
        self._layout = self._arrange()

    @staticmethod
    def is_needed(row: Row) -> bool:
        """Tell whether a reply asks."""
        return row.message.status is MessageStatus.ASKING and row.message.question is not None

    @property
    def choices(self) -> list[ChoiceButton]:
        """The policies offered."""
        return list(self._choices)

    @property
    def always(self) -> QCheckBox:
        """Whether the answer becomes the setting."""
        return self._always

    @property
    def start_over(self) -> QPushButton:
        """The way to a new conversation."""
        return self._over

    @property
    def cancel(self) -> QPushButton:
        """The way back."""
        return self._cancel

    def set_row(self, row: Row) -> None:
        """Show what is asked."""
        question = row.message.question
        assert question is not None
        self._words.setText(question_words(question))
        # What is to be continued was not asked just now.
        self._over.setVisible(not row.message.content)
        if not self._choices:
            for choice in question.choices:
                self._add(choice)

    def text(self) -> str:
        """Return all words."""
        return "\n".join(label.text() for label in self.findChildren(QLabel))

    def fit(self, width: int) -> int:
        """Return the height for this width."""
        return self._layout.heightForWidth(width)

    def _add(self, choice: ContextChoice) -> None:
        button = ChoiceButton(self._look, choice, self)
        button.clicked.connect(lambda: self.answered.emit(choice.policy, self._always.isChecked()))
        self._choices.append(button)
        self._list.addWidget(button)

    def _heading(self) -> QLabel:
        label = QLabel(self.tr("This conversation no longer fits"), self)
        label.setWordWrap(True)
        look = self._look
        label.setStyleSheet(
            f"font-size: {look.px(15)}px; font-weight: 600; color: {look.theme.text};"
        )
        return label

    def _link(self, words: str, answer: str) -> QPushButton:
        button = QPushButton(words, self)
        button.setProperty("kind", "link")
        button.setStyleSheet(f"font-size: {self._look.px(13)}px; font-weight: 600;")
        button.setCursor(Qt.CursorShape.PointingHandCursor)
        button.clicked.connect(lambda: self.answered.emit(answer, False))
        return button

    def _arrange(self) -> QVBoxLayout:
        px = self._look.px
        foot = QHBoxLayout()
        foot.setSpacing(px(16))
        foot.addWidget(self._over)
        foot.addWidget(self._cancel)
        foot.addStretch(1)
        column = QVBoxLayout(self)
        column.setContentsMargins(px(16), px(14), px(16), px(14))
        column.setSpacing(px(4))
        column.addWidget(self._title)
        column.addWidget(self._words)
        column.addSpacing(px(6))
        column.addLayout(self._list)
        column.addSpacing(px(6))
        column.addWidget(self._always)
        column.addSpacing(px(6))
        column.addLayout(foot)
        return column


class ChoiceButton(QPushButton):
    """A policy above what it costs; disabled where it cannot be had."""

    def __init__(self, look: Look, choice: ContextChoice, parent: QWidget) -> None:
        super().__init__(parent)
        theme, px = look.theme, look.px
        can_have = not choice.refusal
        messages = self.tr("%n message(s)", "", choice.num_messages)
        name, cost = policy_name(choice.policy), choice_words(choice, messages)
        title = quiet_label(look, name, role="text" if can_have else "faint", parent=self)
        title.setStyleSheet(title.styleSheet() + "font-weight: 600;")
        words = quiet_label(look, cost, role="muted" if can_have else "faint", parent=self)
        words.setWordWrap(True)
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(px(12), px(8), px(12), px(8))
        self._column.setSpacing(0)
        for label in (title, words):
            label.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
            self._column.addWidget(label)
        self.setAccessibleName(name)
        self.setAccessibleDescription(cost)
        self.setEnabled(can_have)
        self.setCursor(Qt.CursorShape.PointingHandCursor)
        self.setStyleSheet(
            f"QPushButton {{ background: {theme.control}; border: 1px solid transparent;"
            f" border-radius: {px(8)}px; padding: 0; min-height: 0; }}"
            f"QPushButton:hover {{ background: {theme.pressed}; }}"
            f"QPushButton:focus {{ border: 1px solid {theme.focus}; }}"
            f"QPushButton:disabled {{ background: {theme.side}; }}"
        )
        policy = QSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
        policy.setHeightForWidth(True)
        self.setSizePolicy(policy)

    def hasHeightForWidth(self) -> bool:
        return True

    def heightForWidth(self, width: int) -> int:
        return self._column.heightForWidth(width)

    def sizeHint(self) -> QSize:
        return self._column.sizeHint()

    def minimumSizeHint(self) -> QSize:
        return QSize(0, self._column.minimumSize().height())
