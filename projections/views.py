"""Views over the tables of a log: what its events say of turns, holds and calls, their JSON opened."""

from __future__ import annotations

from collections.abc import Mapping

AGENT = "substr(e.stream, instr(e.stream, '/') + 1)"
MS = "CAST(round((julianday({1}) - julianday({0})) * 86400000) AS INTEGER)"
ENDS = "'turn_completed', 'turn_exhausted', 'turn_aborted', 'turn_declined', 'turn_withdrawn'"

VIEWS: Mapping[str, str] = {
    "v_turns": f"""
        WITH started AS (
            SELECT turn, stream, min(at) AS at, max(seq) AS last,
                max(coalesce(json_extract(data, '$.attempt'), 1)) AS attempts
            FROM events WHERE kind = 'turn_started' GROUP BY turn
        )
        SELECT e.turn, {AGENT} AS agent, coalesce(ended.kind, 'owed') AS state, e.at AS started, ended.at AS ended,
            {MS.format("e.at", "ended.at")} AS ms, e.attempts,
            json_array_length(json_extract(newest.data, '$.wakes')) AS wakes,
            json_extract(newest.data, '$.channel') AS channel,
            (SELECT count(*) FROM events WHERE kind = 'inference_requested' AND turn = e.turn) AS calls,
            json_extract(ended.data, '$.stop_reason') AS stop_reason,
            json_extract(ended.data, '$.error.kind') AS error
        FROM started AS e JOIN events AS newest ON newest.seq = e.last
        LEFT JOIN events AS ended ON ended.turn = e.turn AND ended.kind IN ({ENDS})
        ORDER BY e.last""",
    "v_owed": """
        SELECT wakes.wake, wakes.agent,
            coalesce(waits.state, CASE WHEN runs.turn IS NULL AND host.quiesced THEN 'gated' END, 'owed') AS state,
            coalesce(wakes.turn, waits.turn) AS turn, wakes.reason, wakes.channel, wakes.author,
            coalesce(holds.since, wakes.at) AS since,
            CASE WHEN EXISTS (SELECT 1 FROM json_each(host.parked) WHERE value = 'agent/' || wakes.agent) THEN NULL
                WHEN holds.provider IS NOT NULL THEN gates.until
                ELSE coalesce(holds.until, runs.next_at) END AS until,
            coalesce(holds.why, runs.state, CASE WHEN host.quiesced THEN 'quiesced' END, '') AS why
        FROM wakes LEFT JOIN turns AS waits ON waits.agent = wakes.agent AND waits.state IN ('held', 'gated')
            AND waits.ended IS NULL AND coalesce(wakes.turn, waits.turn) = waits.turn
        LEFT JOIN holds ON holds.turn = waits.turn AND holds.ended IS NULL
        LEFT JOIN gates ON gates.provider = holds.provider AND gates.model = holds.model AND gates.state = 'closed'
        LEFT JOIN turns AS runs ON runs.agent = wakes.agent AND runs.ended IS NULL
            AND runs.state NOT IN ('held', 'gated')
        LEFT JOIN host
        WHERE wakes.state IN ('waiting', 'taken')
        ORDER BY wakes.agent, wakes.at""",
    "v_holds": f"""
        WITH paired AS (
            SELECT *, (
                SELECT min(seq) FROM events WHERE turn = e.turn AND seq > e.seq
                AND kind = CASE e.kind WHEN 'held' THEN 'hold_ended' ELSE 'provider_released' END
            ) AS last
            FROM events AS e WHERE kind IN ('held', 'provider_held')
        )
        SELECT e.turn, {AGENT} AS agent, CASE e.kind WHEN 'held' THEN 'context' ELSE 'provider' END AS waits_for,
            e.at AS held, over.at AS released, {MS.format("e.at", "over.at")} AS ms,
            coalesce(json_extract(e.data, '$.refusal.why'), json_extract(e.data, '$.why')) AS why,
            coalesce(json_extract(over.data, '$.why'), CASE over.kind WHEN 'provider_released' THEN 'opened' END) AS ended,
            json_extract(e.data, '$.refusal.tokens') AS tokens, json_extract(e.data, '$.refusal.room') AS room,
            json_extract(e.data, '$.provider') AS provider, json_extract(e.data, '$.model') AS model
        FROM paired AS e LEFT JOIN events AS over ON over.seq = e.last
        ORDER BY e.seq""",
    "v_calls": f"""
        WITH asked AS (
            SELECT *, (
                SELECT min(seq) FROM events WHERE call = e.call AND kind IN ('inference_completed', 'inference_failed',
                'inference_interrupted', 'compressed', 'compression_failed', 'compression_discarded')
            ) AS last
            FROM events AS e WHERE kind IN ('inference_requested', 'compression_requested')
        )
        SELECT e.call, {AGENT} AS agent, e.turn,
            CASE e.kind WHEN 'inference_requested' THEN 'turn' ELSE 'compression' END AS purpose,
            json_extract(e.data, '$.provider') AS provider, json_extract(e.data, '$.model') AS model,
            e.at AS requested, answer.at AS ended, {MS.format("e.at", "answer.at")} AS ms,
            CASE answer.kind WHEN 'compressed' THEN 'completed'
                ELSE substr(answer.kind, instr(answer.kind, '_') + 1) END AS outcome,
            json_extract(answer.data, '$.stop_reason') AS stop_reason,
            json_extract(answer.data, '$.error.kind') AS error,
            json_extract(e.data, '$.estimate') AS estimate, json_extract(answer.data, '$.usage.input') AS input,
            json_extract(answer.data, '$.usage.output') AS output,
            CASE WHEN json_extract(answer.data, '$.usage.input') IS NOT NULL
                THEN coalesce(json_extract(answer.data, '$.usage.cached'), 0) END AS cached
        FROM asked AS e LEFT JOIN events AS answer ON answer.seq = e.last
        ORDER BY e.seq""",
    "v_tokens": """
        SELECT substr(ended, 1, 10) AS day, agent, purpose, provider, model, count(*) AS calls,
            sum(input) AS input, sum(output) AS output, sum(cached) AS cached
        FROM v_calls WHERE input IS NOT NULL
        GROUP BY 1, 2, 3, 4, 5 ORDER BY 1, 2, 3, 4, 5""",
}
"""Each view by its name. Moments are ISO 8601 in UTC, `ms` whole milliseconds, tokens the provider's own count.

A call without an outcome is still open, or was never sent.
"""
