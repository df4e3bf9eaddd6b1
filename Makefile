# Not realpath(1), which macOS has since version 13 only.
ROOT := $(shell cd "$$(dirname "$(strip $(MAKEFILE_LIST))")" && pwd -P)
VENV := $(ROOT)/.venv
BIN := $(VENV)/bin

# The interpreter of a new environment; an existing one keeps its own unless PYTHON is given.
PYTHON ?= $(shell "$(BIN)/python" -c 'import sys; print(sys._base_executable)' 2>/dev/null || echo python3)
INSTALL = "$(PYTHON)" "$(ROOT)/scripts/install.py" --environment "$(VENV)"
HAS_NODE = command -v node >/dev/null && command -v npm >/dev/null
HAS_NEW_NEOVIM = nvim --clean --headless -c "execute has('nvim-0.11') ? 'quit' : 'cquit'" >/dev/null 2>&1

# Only if it is given to make: Neovim sets NVIM to its own address in its terminals.
CHOSEN_NVIM := $(if $(filter command,$(origin NVIM)),$(NVIM))
# Bytecode is kept: pytest takes longer to compile the tests than to collect them, in each of its processes.
PYTEST = export SANDERLING_NVIM="$(if $(filter /%,$(CHOSEN_NVIM)),,$(if $(findstring /,$(CHOSEN_NVIM)),$$PWD/))$(CHOSEN_NVIM)"; \
	cd "$(ROOT)" && PYTHONDONTWRITEBYTECODE= "$(BIN)/python" -m pytest
# Tests spend a third of their time waiting, those that only `make prove` runs even more.
PARALLEL = --numprocesses $$(($$(getconf _NPROCESSORS_ONLN) + 1)) --dist worksteal
PARALLEL_PROVE = --numprocesses $$(($$(getconf _NPROCESSORS_ONLN) + 2)) --dist worksteal
ATTACKS := tests/sandbox/test_escapes.py
PARTED = $$(grep -rl --include="test_*.py" --exclude-dir=peers --exclude-dir=chaos --exclude=$(notdir $(ATTACKS)) "^from tests.fuzz import" tests)

LITELLM = litellm[proxy]==1.106.2 # 1.82.7 and 1.82.8 stole keys
ADAPTERS = @agentclientprotocol/claude-agent-acp@0.101.0 @agentclientprotocol/codex-acp@2.6.0

.PHONY: help install chat test prove fuzz check bench screens lock format clean development peers litellm adapters ray score

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]*:.*## / { printf "%-10s%s\n", $$1, $$2 }' "$(ROOT)/Makefile"

install: ## build the Python environment in .venv; PYTHON=python3.13 chooses the interpreter
	@$(INSTALL)

chat: ## open Neovim here, with the chat
	@$(INSTALL) --neovim-if-missing
	@if $(HAS_NEW_NEOVIM); then nvim=nvim; else nvim="$(BIN)/nvim"; fi; \
	exec "$$nvim" --cmd "let &rtp = '$(ROOT),' .. &rtp" --cmd "silent! execute 'helptags' fnameescape('$(ROOT)/doc')" -c AgentChat

test: development peers ## run the tests that find most mistakes; ARGS='-k cancel' chooses, NVIM=PATH the Neovim
	$(PYTEST) -m 'not prove' $(or $(ARGS),$(PARALLEL))

prove: development peers ## run every test; ARGS='-k cancel' chooses, NVIM=PATH the Neovim
ifdef ARGS
	$(PYTEST) $(ARGS)
else # the attacks run alone: the limit on a fork bomb counts all processes of the user
	$(PYTEST) $(PARALLEL_PROVE) --ignore $(ATTACKS); failed=$$?; \
	$(PYTEST) $(PARALLEL) --dist loadgroup $(ATTACKS) && exit $$failed
endif

fuzz: development ## cut, stall, stop and kill everywhere, and run in full what prove samples; takes more than half an hour
	export SANDERLING_FUZZ=full; $(PYTEST) $(PARALLEL) tests/fuzz tests/chaos $(PARTED) $(ARGS) && \
	$(PYTEST) $(PARALLEL) --dist loadgroup $(ATTACKS)

check: development peers ## formatting, lint, types, English; changes nothing
	cd "$(ROOT)" && "$(BIN)/ruff" format --check
	cd "$(ROOT)" && "$(BIN)/ruff" check
	cd "$(ROOT)" && "$(BIN)/basedpyright"
	cd "$(ROOT)" && "$(BIN)/basedpyright" --pythonplatform Darwin
	cd "$(ROOT)" && "$(BIN)/python" scripts/check_prose.py
	cd "$(ROOT)" && "$(BIN)/python" scripts/generate_types.py --check
	cd "$(ROOT)" && "$(BIN)/nvim" --clean -l scripts/generate_plugin.lua --check
	@command -v luacheck >/dev/null || { echo 'luacheck is missing: apt install lua-check, brew install luacheck, or luarocks install luacheck'; exit 1; }
	cd "$(ROOT)" && luacheck --quiet lua plugin
	cd "$(ROOT)" && "$(BIN)/python" scripts/check_annotations.py
	@if $(HAS_NODE); then node "$(ROOT)/scripts/stylua.mjs" --check; else echo 'StyLua skipped: no Node'; fi

format: development peers ## format Python and Lua, fix what ruff can fix, write the generated files
	cd "$(ROOT)" && "$(BIN)/python" scripts/generate_types.py
	cd "$(ROOT)" && "$(BIN)/nvim" --clean -l scripts/generate_plugin.lua
	cd "$(ROOT)" && "$(BIN)/ruff" format
	@if $(HAS_NODE); then node "$(ROOT)/scripts/stylua.mjs"; else echo 'StyLua skipped: no Node'; fi
	cd "$(ROOT)" && "$(BIN)/ruff" check --fix

litellm: ## install LiteLLM's proxy (750 MB) for the tests that talk through it; without it they skip
	@cd "$(ROOT)/tests/peers" && if [ ! -x litellm/bin/litellm ]; then \
	if command -v uv >/dev/null; then uv venv -q litellm && uv pip install -q --python litellm/bin/python '$(strip $(LITELLM))'; \
	else "$(PYTHON)" -m venv litellm && litellm/bin/python -m pip install -q '$(strip $(LITELLM))'; fi; fi

ray: ## run the tests of the engine ray, with 1,000 tasks; TASKS=60 chooses another number
	@$(INSTALL) --extras dev,neovim,batch,ray
	export SANDERLING_RAY_TASKS="$(or $(TASKS),1000)"; $(PYTEST) -n0 tests/ray $(ARGS)

adapters: ## install Claude Code and Codex as agents (840 MB) for the tests that start them; without them they skip
	@cd "$(ROOT)/tests/peers" && mkdir -p adapters && npm install --prefix adapters --no-audit --no-fund --silent $(ADAPTERS)

bench: development ## measure speed
	cd "$(ROOT)" && "$(BIN)/python" -m tests.bench $(ARGS)

score: development ## let Sanderling and agents on PATH do eval/tasks with scripted models; AGENTS, TASKS, JOBS choose
	cd "$(ROOT)" && "$(BIN)/python" -m eval.score $(if $(AGENTS),--agents '$(AGENTS)') $(if $(TASKS),--tasks '$(TASKS)') $(if $(JOBS),--jobs $(JOBS)) $(ARGS)

screens: development ## draw the states of the screen into doc/screens; ARGS='answer edit' chooses
	cd "$(ROOT)" && "$(BIN)/python" -m tests.screens $(ARGS)

lock: ## pin the current versions, with hashes, in constraints.txt; needs uv
	@"$(PYTHON)" "$(ROOT)/scripts/lock.py"

clean: ## remove what the other targets created
	rm -rf "$(VENV)" "$(ROOT)/tests/peers/node_modules" "$(ROOT)/tests/peers/litellm" "$(ROOT)/tests/peers/adapters" "$(ROOT)/.pytest_cache" "$(ROOT)/.ruff_cache"
	find "$(ROOT)" -name __pycache__ -prune -exec rm -rf {} +

development:
	@$(INSTALL) --extras dev,neovim,batch

# The Node programs that tests talk to; without Node those tests skip.
peers:
	@cd "$(ROOT)/tests/peers" && if ! { $(HAS_NODE); }; then echo 'no Node: tests of its programs skip'; \
	elif [ ! node_modules/.package-lock.json -nt package.json ]; then npm install --no-fund --no-audit; fi
