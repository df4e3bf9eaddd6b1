#!/bin/bash
if [ "$(cat /app/count.txt)" = 3 ]; then echo '{"reward": 1.0}'; else echo '{"reward": 0.0}'; fi > /logs/verifier/reward.json
