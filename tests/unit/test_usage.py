"""What requests use and cost: held against a ledger that was made by hand."""

import json
import math

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.conftest import examples, happens, policy_of, prove
from tests.wires.servers import ChatServer, told

from sanderling.config import Settings
from sanderling.conversation.conversation import Conversation
from sanderling.conversation.services import SessionServices
from sanderling.conversation.usage_report import shown_cost, usage_report
from sanderling.errors import ConfigError
from sanderling.protocol.events import UsageUpdated
from sanderling.protocol.messages import Prompt, Usage
from sanderling.providers.choice import make_provider
from sanderling.providers.http.models import decode_models
from sanderling.providers.models.known import LENGTH_STEP_TOKENS, KnownModels, Price
from sanderling.session.ledger import MAX_TURNS, Ledger
from sanderling.session.prices import Cost, Prices, prompt_tokens
from sanderling.session.session import Session

SHIPPED = Prices(KnownModels())

# Model, usage (in, out, written to the cache, read from it), and the dollars that they come to on paper.
BY_HAND = (
    ("claude-sonnet-5-5", Usage(1_000, 2_000, 30_000, 400_000), 0.002 + 0.02 + 0.075 + 0.04),
    ("claude-opus-5-5", Usage(1_000, 2_000, 30_000, 400_000), 0.004 + 0.04 + 0.15 + 0.08),
    ("claude-opus-5", Usage(1_000, 2_000, 30_000, 400_000), 0.005 + 0.05 + 0.1875 + 0.2),
    ("claude-haiku-5-5", Usage(10_000, 2_000, 30_000, 60_000), 0.001 + 0.001 + 0.00375 + 0.0006),
    ("claude-haiku-5-5", Usage(10_001, 2_000, 30_000, 60_000), 0.0050005 + 0.005 + 0.01875 + 0.003),
    ("claude-haiku-4-5-20251001", Usage(1_000_000, 0, 0, 0), 1.0),
    ("scripted", Usage(1_000_000, 1_000_000, 1_000_000, 1_000_000), 0.0),
)


@pytest.mark.parametrize("model, usage, usd", BY_HAND)
def test_a_request_costs_what_it_comes_to_on_paper(model, usage, usd):
    assert SHIPPED.cost_usd(model, usage) == pytest.approx(usd, rel=1e-9)


def test_a_session_costs_what_its_requests_do_and_a_turn_what_its_own_do():
    ledger = Ledger()
    for model, usage, _ in BY_HAND:
        ledger.begin_turn()
        ledger.add(model, usage)
    assert ledger.cost(SHIPPED) == (pytest.approx(sum(usd for *_, usd in BY_HAND)), True)
    assert ledger.turn_cost(SHIPPED) == (0.0, True)
    assert ledger.cost(SHIPPED, "claude-opus-5") == (pytest.approx(0.4425), True)
    assert ledger.total == sum((usage for _, usage, _ in BY_HAND), Usage())
    assert ledger.turn == BY_HAND[-1][1]
    assert ledger.by_model["claude-haiku-5-5"] == Usage(20_001, 4_000, 60_000, 120_000)
    assert ledger.last_model == "scripted"


REQUESTS = st.lists(
    st.tuples(
        st.sampled_from(["claude-haiku-5-5", "claude-sonnet-5-5", "mine"]),
        st.builds(Usage, *[st.integers(0, 150_000)] * 4),
    ),
    max_size=30,
)


@prove
@settings(max_examples=examples(200), deadline=None)
@given(REQUESTS, st.integers(1, 400))
def test_a_sum_is_exact_wherever_long_prompts_begin(requests, limit):
    mine = {
        "input": 3,
        "output": 7,
        "long_prompt_tokens": limit * LENGTH_STEP_TOKENS,
        "long_input_factor": 2,
        "long_output_factor": 1.5,
    }
    prices = Prices(KnownModels(prices={"mine": mine}))
    ledger = Ledger()
    for model, usage in requests:
        ledger.add(model, usage)
    exact = math.fsum(prices.cost_usd(model, usage) or 0 for model, usage in requests)
    assert ledger.cost(prices) == (pytest.approx(exact, rel=1e-9), True)
    assert ledger.turn_cost(prices) == ledger.cost(prices)


def test_a_long_session_is_not_longer_to_add_up():
    ledger = Ledger()
    for number in range(10_000):
        ledger.add("claude-sonnet-5-5", Usage(number % 100 * 1_000, 500))
    assert len(ledger._all._by_length) == 100
    assert ledger.total == Usage(495_000_000, 5_000_000)


def test_long_prompts_cost_more_from_the_first_token_over_the_limit_and_all_of_them():
    at_limit = SHIPPED.cost_usd("claude-haiku-5-5", Usage(0, 1_000, 0, 100_000))
    above = SHIPPED.cost_usd("claude-haiku-5-5", Usage(1, 1_000, 0, 100_000))
    assert at_limit == pytest.approx(0.0015)
    assert above == pytest.approx(5 * (0.0015 + 0.0000001))


# --- prices ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "model, known_as",
    [
        ("claude-sonnet-5-5-20260901", "claude-sonnet-5-5"),
        ("claude-sonnet-5-20260601", "claude-sonnet-5"),
        ("claude-haiku-4-5@20251001", "claude-haiku-4-5"),
        ("claude-opus-5-5-latest", "claude-opus-5-5"),
    ],
)
def test_a_snapshot_costs_what_its_model_does(model, known_as):
    assert SHIPPED.of(known_as)
    assert SHIPPED.of(model) == SHIPPED.of(known_as)


@pytest.mark.parametrize(
    "model", ["claude-opus-5-6", "claude-sonnet-5-51", "claude-opus", "gpt-6", "", "claude-"]
)
def test_the_price_of_another_release_is_not_guessed(model):
    assert SHIPPED.of(model) is None
    assert SHIPPED.cost_usd(model, Usage(1)) is None


@pytest.mark.parametrize("model", ["scripted", "demo", "script:~/tour.json"])
def test_scripts_are_free(model):
    assert SHIPPED.cost_usd(model, Usage(1_000_000, 1_000_000)) == 0


def test_a_persons_price_goes_before_ours_key_by_key():
    prices = Prices(
        KnownModels(
            prices={"claude-opus-5-5": {"input": 1.5}, "local": {"input": 0, "output": 0.5}}
        )
    )
    opus, local = prices.of("claude-opus-5-5"), prices.of("local")
    assert opus
    assert (opus.input, opus.output, opus.cache_read) == (1.5, 20, 0.2)
    assert local
    assert local.cost_usd(Usage(1_000_000, 1_000_000, 1_000_000, 1_000_000), 0) == 0.5
    assert prices.of("claude-sonnet-5-5") == SHIPPED.of("claude-sonnet-5-5")


def test_without_a_price_of_its_own_the_cache_costs_what_input_does():
    prices = Prices(KnownModels(prices={"m": {"input": 3, "output": 5}}))
    assert prices.cost_usd("m", Usage(0, 0, 1_000_000, 1_000_000)) == 6


@pytest.mark.parametrize(
    "price, told",
    [
        ({"input": 1, "outputs": 2}, "`outputs`"),
        ({"input": 1}, "`output`"),
        ({"input": -1, "output": 2}, "`$.input`"),
        ({"input": float("nan"), "output": 2}, "`$.input`"),
        ({"input": 1, "output": float("inf")}, "`$.output`"),
        ({"input": 1, "output": 2, "long_prompt_tokens": 100_001}, "`$.long_prompt_tokens`"),
    ],
)
def test_a_wrong_price_is_told_with_its_model_and_key(price, told):
    with pytest.raises(ConfigError) as raised:
        Prices(KnownModels(prices={"my-model": price}))
    assert "'my-model'" in str(raised.value)
    assert told in str(raised.value)


# --- the report --------------------------------------------------------------------------------------------------------


def test_report_shows_context_budget_models_and_turns():
    ledger = Ledger()
    ledger.begin_turn()
    ledger.add("claude-sonnet-5-5", Usage(1_000, 500, 9_000, 0))
    ledger.begin_turn()
    ledger.add("claude-sonnet-5-5", Usage(500, 1_500, 520, 9_000))
    ledger.add("claude-opus-5-5", Usage(10_000, 2_000))
    text = usage_report(
        ledger, SHIPPED, model="claude-opus-5-5", context_used=12_000, window=200_000, budget_usd=5
    )
    assert text == (
        "* Model: claude-opus-5-5\n"
        "* Context: 12,000 of 200,000 tokens (6%)\n"
        "* Session: $0.1277 of a budget of $5.00\n"
        "\n"
        "| model             | tokens in | cached | tokens out |    cost |\n"
        "| ----------------- | --------: | -----: | ---------: | ------: |\n"
        "| claude-sonnet-5-5 |    20,020 |    45% |      2,000 | $0.0477 |\n"
        "| claude-opus-5-5   |    10,000 |     0% |      2,000 | $0.0800 |\n"
        "| all               |    30,020 |    30% |      4,000 | $0.1277 |\n"
        "\n"
        "| turn | tokens in | cached | tokens out |    cost |\n"
        "| ---- | --------: | -----: | ---------: | ------: |\n"
        "| 1    |    10,000 |     0% |        500 | $0.0295 |\n"
        "| 2    |    20,020 |    45% |      3,500 | $0.0982 |\n"
    )


def test_report_rounds_the_context_up_as_the_winbar_does():
    text = usage_report(Ledger(), SHIPPED, model="m", context_used=3_001, window=1_000_000)
    assert "* Context: 3,001 of 1,000,000 tokens (1%)\n" in text


def test_report_says_what_has_no_price_and_still_gives_the_rest():
    ledger = Ledger()
    ledger.add("mystery", Usage(1_000, 10))
    assert "cost" in usage_report(ledger, SHIPPED, model="mystery", context_used=10, window=0)
    ledger.add("claude-opus-5-5", Usage(1_000_000))
    ledger.add("", Usage(1))
    text = usage_report(ledger, SHIPPED, model="mystery", context_used=1_010, window=0)
    assert "* Context: 1,010 tokens\n" in text
    assert "* Session: $4.00 + ?\n" in text
    assert "No price known for mystery, an unknown model." in text
    assert "| mystery         |     1,000 |     0% |         10 |         ? |" in text


def test_report_of_a_session_without_requests_has_no_tables():
    text = usage_report(Ledger(), SHIPPED, model="", context_used=0, window=0)
    assert text == "* Model: unknown\n* Context: 0 tokens\n* Session: $0.00\n"


def test_report_shows_the_last_turns_and_counts_all():
    ledger = Ledger()
    for _ in range(100):
        ledger.begin_turn()
        ledger.add("scripted", Usage(10, 1))
    assert [turn.number for turn in ledger.turns] == list(range(101 - MAX_TURNS, 101))
    assert ledger.total == Usage(1_000, 100)


@pytest.mark.parametrize(
    "cost, shown",
    [
        (Cost(0.0, is_priced=True), "$0.00"),
        (Cost(0.00012, is_priced=True), "$0.0001"),
        (Cost(1234.5, is_priced=True), "$1,234.50"),
        (Cost(0.5, is_priced=False), "$0.5000 + ?"),
        (Cost(0.0, is_priced=False), "?"),
    ],
)
def test_a_cost_is_shown_in_dollars(cost, shown):
    assert shown_cost(cost) == shown


def test_prompt_tokens_are_all_that_went_in():
    assert prompt_tokens(Usage(1, 20, 300, 4_000)) == 4_301


# --- a price that the provider tells -----------------------------------------------------------------------------------

PRICED = {
    "id": "z-ai/glm-5",
    "context_length": 200_000,
    "pricing": {"prompt": "0.0000014", "completion": "0.0000044", "input_cache_read": "0.00000014"},
}


@pytest.mark.parametrize(
    "pricing, price",
    [
        (PRICED["pricing"], Price(1.4, 4.4, cache_read=0.14)),
        ({"prompt": "0", "completion": "0"}, Price(0, 0)),
        ({"prompt": "-1", "completion": "-1"}, None),
        ({"prompt": "0.1"}, None),
        ({"prompt": "cheap", "completion": "nan"}, None),
        ({"prompt": 1, "completion": 2}, None),
        ("free", None),
        (None, None),
    ],
)
def test_a_list_of_models_may_tell_prices(pricing, price):
    data = json.dumps({"data": [{"id": "m", "pricing": pricing}]}).encode()
    assert decode_models(data)["m"].price == price


@pytest.mark.parametrize("model, is_priced", [(PRICED, True), ({"id": "z-ai/glm-5"}, False)])
async def test_what_the_endpoint_asks_for_is_what_the_session_costs(tmp_path, model, is_priced):
    events: list[UsageUpdated] = []

    def emit(event) -> None:
        if isinstance(event, UsageUpdated):
            events.append(event)

    with ChatServer() as server:
        server.models = told({"data": [model]})
        table = {"wire": "chat", "base_url": f"{server.url}/v1"}
        chosen = Settings(str(tmp_path), model="router:z-ai/glm-5", providers={"router": table})
        session = Session.open(tmp_path / "sessions", "s", str(tmp_path))
        services = SessionServices(session, make_provider(chosen), emit, policy_of(session), chosen)
        conversation = Conversation(services)
        await services.provider.learn_limits()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(conversation.serve)
            conversation.submit(Prompt("p", "Good morning."))
            await happens(lambda: events)
            conversation.close()
        await services.provider.aclose()
    last = events[-1]
    usd = (10 * 1.4 + 5 * 4.4) / 1e6 if is_priced else 0
    assert (last.is_priced, last.cost_usd) == (is_priced, pytest.approx(usd))
