"""The ask_user tool: the model asks the user questions, or whether they accept its plan, and waits for the answer."""

from collections import Counter
from collections.abc import Mapping
from typing import Annotated

import msgspec

from sanderling.errors import ToolError
from sanderling.protocol.events import ApprovalRequested, FormChoice, FormField
from sanderling.text import shortened, visible_prose
from sanderling.tools.base import Context, tool
from sanderling.tools.effects import Effect
from sanderling.tools.outcome import Outcome
from sanderling.tools.user import User

MAX_QUESTIONS, MAX_CHOICES = 4, 9
MAX_QUESTION_CHARS, MAX_LABEL_CHARS, MAX_HELP_CHARS = 1_000, 100, 300
MAX_PLAN_CHARS = 20_000
MAX_TITLE_CHARS, MAX_SUMMARY_CHARS = 200, 60
PLAN = "plan"
KEEP = "keep"

NO_USER = (
    "No user can answer questions in this session. Decide what you can, and say what you assumed."
)
NOT_PLANNING = "This is not plan mode, so there is no plan to accept: carry out what the user asked for, or ask `questions`."
DISMISSED = "The user dismissed this without an answer. Do not ask it again: choose what is safest and say what you assumed, or end your turn."
KEPT = "The user did not accept the plan yet, and gave no comment. Stay in plan mode: improve it, or ask what is missing."
ACCEPTED: dict[str, str] = {
    "ask": "The user accepts the plan and has switched to ask mode: changes and commands ask them first. Carry it out now.",
    "auto": "The user accepts the plan and has switched to auto mode: what the sandbox confines runs without asking. Carry it out now.",
}
PLAN_FIELD = FormField(
    PLAN,
    "choice",
    choices=(
        FormChoice("ask", "Accept, ask mode", "each change and command asks you"),
        FormChoice("auto", "Accept, auto mode", "what the sandbox confines runs without asking"),
        FormChoice(KEEP, "Keep planning", "stay in plan mode"),
    ),
)


class Choice(msgspec.Struct, forbid_unknown_fields=True):
    label: str
    description: str = ""


class UserQuestion(msgspec.Struct, forbid_unknown_fields=True):
    question: str
    choices: tuple[Choice, ...] = ()
    several: bool = False


class AskUserInput(msgspec.Struct, forbid_unknown_fields=True):
    questions: tuple[UserQuestion, ...] = ()
    plan: Annotated[str, msgspec.Meta(description="Its title")] = ""


def text_name(field: str) -> str:
    """Return the name of the entry with the user's own words on `field`."""
    return f"{field}_text"


def _title(args: AskUserInput, _: object) -> str:
    return args.plan or next((each.question for each in args.questions), "")


@tool(
    AskUserInput,
    effect=lambda _args, _workspace: Effect("ask_user", "none"),
    title=_title,
    waits_for_user=True,
)
async def ask_user(args: AskUserInput, context: Context) -> Outcome:
    """
    Ask the user 1 to 4 questions and wait for the answers.

    Only for the user's decisions, if neither the request nor the project answers. Recommended choice first; no "other": they
    can always use their own words. In plan mode, when your text has the finished plan, give only `plan`: the user accepts or comments.
    """
    user = context.workspace.user
    if user is None:
        raise ToolError(NO_USER)
    plan = args.plan.strip()
    if plan and not args.questions:
        return await _ask_about_plan(plan, user, context)
    fields = _fields(args)
    answer = await user.ask_user(_question(context, "question", "", fields))
    answers = [_answer_of(field, answer.values) for field in fields]
    if answer.answer == "deny" or not any(answers):
        return _dismissed(answer.reason.strip())
    said = [each or "(no answer)" for each in answers]
    if len(fields) == 1:
        text = f"The user answers: {said[0]}"
    else:
        pairs = zip(fields, said, strict=True)
        text = "\n".join(["The user answers:", *(f"{q.label} → {a}" for q, a in pairs)])
    return Outcome(content=text, summary=_summary("; ".join(filter(None, answers))), detail=text)


async def _ask_about_plan(plan: str, user: User, context: Context) -> Outcome:
    if user.mode != PLAN:
        raise ToolError(NOT_PLANNING)
    answer = await user.ask_user(_question(context, PLAN, plan, (PLAN_FIELD,)))
    chosen, comment = answer.values.get(PLAN, ""), _own_words(PLAN_FIELD, answer.values)
    if answer.answer != "deny" and chosen in ACCEPTED:
        more = f"\nThey add: {comment}" if comment else ""
        return _plain(f"{ACCEPTED[chosen]}{more}", f"accepted, {chosen} mode")
    if answer.reason.strip():
        return _plain(f"The plan was not accepted: {answer.reason.strip()}", "keep planning")
    if comment:
        return _plain(f"The user comments on the plan: {comment}\nStay in plan mode.", "comment")
    return _plain(KEPT, "keep planning")


def _plain(text: str, summary: str) -> Outcome:
    return Outcome(content=text, summary=summary, detail=text)


def _dismissed(reason: str) -> Outcome:
    return _plain(f"There is no answer: {reason}" if reason else DISMISSED, "dismissed")


def _summary(text: str) -> str:
    return shortened(" ".join(text.split()), MAX_SUMMARY_CHARS)


def _question(
    context: Context, kind: str, plan: str, fields: tuple[FormField, ...]
) -> ApprovalRequested:
    plan = visible_prose(plan)[:MAX_PLAN_CHARS]
    return ApprovalRequested(
        context.tool_use_id,
        "ask_user",
        shortened((plan or fields[0].label).splitlines()[0], MAX_TITLE_CHARS),
        plan or "\n\n".join(map(_in_full, fields)),
        "",
        context.workspace.project,
        ("once",),
        kind="plan" if kind == PLAN else "question",
        fields=fields,
    )


def _in_full(field: FormField) -> str:
    choices = (f"* {each.value}{': ' * bool(each.help)}{each.help}" for each in field.choices)
    return "\n".join([field.label, *choices])


def _fields(args: AskUserInput) -> tuple[FormField, ...]:
    """
    Return the questions as fields of a form, one for each.

    Raises:
        ToolError: no question is asked, or too many are, or one cannot be shown.
    """
    count = len(args.questions)
    if not count:
        raise ToolError("Give one to four `questions`, or in plan mode the title of your `plan`.")
    if args.plan.strip():
        raise ToolError("Ask the `questions` first: `plan` goes alone, when nothing is open.")
    if count > MAX_QUESTIONS:
        raise ToolError(f"{count} questions; the limit is {MAX_QUESTIONS}: ask what matters most.")
    return tuple(_field(each, number) for number, each in enumerate(args.questions, 1))


def _field(asked: UserQuestion, number: int) -> FormField:
    text = visible_prose(asked.question).strip()
    labels = [" ".join(visible_prose(each.label).split()) for each in asked.choices]
    if not text or len(text) > MAX_QUESTION_CHARS:
        raise ToolError(f"Question {number} must have 1 to {MAX_QUESTION_CHARS:,} characters.")
    if len(labels) > MAX_CHOICES:
        raise ToolError(f"Question {number} has {len(labels)} choices; the limit is {MAX_CHOICES}.")
    if not all(0 < len(label) <= MAX_LABEL_CHARS for label in labels):
        raise ToolError(
            f"Each `label` of question {number} must have 1 to {MAX_LABEL_CHARS} characters; the rest goes into its `description`."
        )
    if twice := [label for label, times in Counter(labels).items() if times > 1]:
        raise ToolError(f"Question {number} has the choice '{twice[0]}' twice.")
    choices = tuple(
        FormChoice(label, help=_help(each.description))
        for label, each in zip(labels, asked.choices, strict=True)
    )
    kind = ("choices" if asked.several else "choice") if choices else "string"
    return FormField(str(number), kind, label=text, choices=choices)


def _help(description: str) -> str:
    return shortened(" ".join(visible_prose(description).split()), MAX_HELP_CHARS)


def _answer_of(field: FormField, values: Mapping[str, str]) -> str:
    """Return the user's answer in words: the choices, then their own words, in quotes if there are both."""
    labels = {each.value for each in field.choices}
    chosen = [line for line in values.get(field.name, "").splitlines() if line in labels]
    own = _own_words(field, values)
    if chosen and own:
        return f'{", ".join(chosen)}. They add: "{own}"'
    return ", ".join(chosen) or own


def _own_words(field: FormField, values: Mapping[str, str]) -> str:
    labels = {each.value for each in field.choices}
    text = values.get(text_name(field.name), "").strip()
    # A client may put them where the choice goes.
    entered = values.get(field.name, "").strip()
    is_choice = bool(labels) and set(entered.splitlines()) <= labels
    return text or ("" if is_choice else entered)
