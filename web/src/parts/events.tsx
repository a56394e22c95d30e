// How an event reads, everywhere.
import type { Rec } from '../api';
import { ago, clock, num, server } from '../format';

const WORDS: Record<string, string> = {
  role: 'role', status: 'status', writer: 'writer', discovery: 'member', address: 'address',
  suspicion: 'suspicion', identity: 'identity', order: 'order',
};

export function kindOf(event: Rec): 'bad' | 'warn' | 'ok' | 'info' {
  const to = event.to_state ?? '';
  if (event.kind === 'order') return /refused|not switched/.test(to) ? 'bad' : 'info';
  if (/SHUNNED|OFFLINE_HARD|none|stranger|down/.test(to)) return 'bad';
  if (/OFFLINE_SOFT|unknown|frozen/.test(to) || event.kind === 'suspicion') return 'warn';
  return to === 'ONLINE' ? 'ok' : 'info';
}

export function EventLine({ event }: { event: Rec }) {
  const at = num(event.time_ms);
  return (
    <li class={kindOf(event)}>
      <time title={new Date(at).toISOString()}>{clock(at)}</time>
      <span class="muted"> {ago(at)}</span>
      <div>
        <b>{WORDS[event.kind ?? ''] ?? event.kind}</b> {server(event.hostname, event.port)}{event.cluster !== null && <span class="muted"> cluster {event.cluster}</span>}
        {' '}{event.from_state ? <>{event.from_state} → </> : null}<strong>{event.to_state}</strong>
      </div>
      {event.kind === 'order' ? <Order text={event.seen || event.why || ''} /> : (
        <>
          {event.why && <div class="why">Why: {event.why}{event.seen_by && <span class="muted"> (seen by {event.seen_by})</span>}</div>}
          {event.seen && <div class="muted seen">Seen: {event.seen}</div>}
        </>
      )}
    </li>
  );
}

/** An order that was carried out tells its steps, each with its time. */
function Order({ text }: { text: string }) {
  const steps = text.split('; ');
  if (!/\(\d+ ms\)/.test(text) || steps.length < 3) return <div class="why">{text}</div>;
  return <ul class="why ordersteps">{steps.map((step) => <li key={step}>{step}</li>)}</ul>;
}
