// Rehearsals: the verdict of each, how much was compared, and the worst differences with samples.
import { useState } from 'preact/hooks';
import type { Rec } from '../api';
import { clock, count, micros, millis, num } from '../format';
import { rowsOf, useView } from '../live';
import { Act, type Action } from '../parts/act';
import { Table } from '../parts/table';
import { Part, Pill, View } from '../parts/view';

type Weight = 'bad' | 'look' | 'ignored';
/** Classes of differences, the worst first; what each means for an upgrade. */
const CLASSES: [string, Weight, string][] = [
  ['error_new', 'bad', 'only the shadow fails'],
  ['rows', 'bad', 'other content'],
  ['count', 'bad', 'more or fewer rows'],
  ['affected', 'bad', 'more or fewer changed rows'],
  ['timed_out', 'bad', 'the shadow reached a time limit'],
  ['error_gone', 'look', 'only the original fails'],
  ['error_other', 'look', 'both fail, with other errors'],
  ['reordered', 'look', 'another order in spite of ORDER BY'],
  ['limited', 'look', 'other rows below a LIMIT without ORDER BY'],
  ['float', 'look', 'digits behind the twelfth'],
  ['columns', 'look', 'column definitions'],
  ['insert_id', 'look', 'another AUTO_INCREMENT value'],
  ['warnings', 'look', 'number of warnings'],
  ['ignored', 'ignored', 'a row of mysql_rehearsal_ignores names it'],
];
const SIGNS: Record<Weight, 'bad' | 'warn' | 'off'> = { bad: 'bad', look: 'warn', ignored: 'off' };
const VERDICTS: Record<string, 'ok' | 'warn' | 'bad'> = { SAFE: 'ok', 'NOT ENOUGH': 'warn', 'NOT SAFE': 'bad' };

interface Difference { rank: number; name: string; weight: Weight; means: string; times: number; digest: Rec; samples: Rec[] }

function differences(digests: Rec[], samples: Rec[]): Difference[] {
  const all = digests.flatMap((digest) => CLASSES.map(([name, weight, means], rank): Difference => ({
    rank, name, weight, means, times: num(digest[name]), digest,
    samples: samples.filter((sample) => sample.digest === digest.digest && sample.class === name),
  })));
  return all.filter((one) => one.times > 0).sort((a, b) => a.rank - b.rank || b.times - a.times);
}

function start(name: string): Action {
  return {
    title: `Start rehearsal ${name}`,
    verb: 'Start',
    fields: [{ name: 'seconds', label: 'For seconds', value: '3600', kind: 'number', check: (text) => (/^[1-9]\d*$/.test(text) ? null : { level: 'error', text: 'A number of seconds from 1.' }) }],
    effect: () => <p>What was found by its last run is forgotten. The proxy logs in to the shadow with each user that takes part. Mode <code>all</code> takes the shadow out of replication for good.</p>,
    sql: (values) => [`START REHEARSAL '${name}' FOR ${values.seconds} SECONDS`],
  };
}

const stop = (name: string): Action => ({ title: `Stop rehearsal ${name}`, verb: 'Stop', effect: () => <p>What waits for the shadow is dropped. What was found stays.</p>, sql: () => [`STOP REHEARSAL '${name}'`] });

export function Rehearsals() {
  const live = useView('rehearsals');
  const runs = rowsOf(live.data, 'rehearsals');
  const rows = rowsOf(live.data, 'rows');
  const idle = rows.filter((row) => !runs.some((run) => run.name === row.name));
  return (
    <View name="rehearsals" title="Rehearsals" live={live} intro="A rehearsal repeats statements on a server of another version and compares the answers. Its verdict says whether an upgrade is safe.">
      {(data) => (
        <>
          <Part data={data} of="rehearsals">
            {runs.length === 0 && idle.length === 0 && <div class="empty"><p>No rehearsal is configured.</p><p class="muted">Add a row to <code>mysql_rehearsals</code>, then <code>LOAD MYSQL QUERY RULES TO RUNTIME</code>.</p></div>}
            {idle.map((row) => <p key={row.name}><b>{row.name}</b> has not run since the start of the proxy. {row.active === '1' ? <Act label="Start…" about={`rehearsal ${row.name}`} of={() => start(row.name ?? '')} /> : <span class="muted">It is not active.</span>}</p>)}
          </Part>
          {runs.map((run) => (
            <Run key={run.name} run={run} row={rows.find((one) => one.name === run.name)}
              found={differences(rowsOf(data, 'digests').filter((row) => row.name === run.name), rowsOf(data, 'samples').filter((row) => row.name === run.name))}
              plans={rowsOf(data, 'plans').filter((row) => row.name === run.name)} />
          ))}
        </>
      )}
    </View>
  );
}

function Run({ run, row, found, plans }: { run: Rec; row: Rec | undefined; found: Difference[]; plans: Rec[] }) {
  const [values, setValues] = useState(false);
  const name = run.name ?? '';
  const hasValues = row?.show_literals === '1';
  const told = (sample: Rec): string => hasValues && !values ? withoutText(sample.shadow ?? '') : sample.shadow ?? '';
  const coverage = num(run.coverage_percent);
  const isOver = run.state === 'ended';
  return (
    <section class="cluster" aria-labelledby={`run-${name}`}>
      <header>
        <h2 id={`run-${name}`}>{name}</h2>
        <Pill kind={VERDICTS[run.verdict ?? ''] ?? 'off'} text={run.verdict ?? ''} />
        <span class="muted">{run.state}, mode {run.mode}, begun {clock(num(run.started_at) * 1_000)}, {count(num(run.seconds))} s</span>
        <span class="gap" />
        {isOver ? row?.active === '1' && <Act quiet label="Start again…" about={`rehearsal ${name}`} of={() => start(name)} /> : <Act quiet label="Stop…" about={`rehearsal ${name}`} of={() => stop(name)} />}
      </header>
      <p class="reason">{run.original} against {run.shadow}</p>
      {run.reasons && <p class="verdicts">{run.reasons}</p>}
      {run.error && <div class="banner warn"><b>Last error of the rehearsal:</b> {run.error}</div>}
      <label class="meterline" for={`coverage-${name}`}>Coverage: {coverage.toFixed(1)} % of the statement time ran as digests that were compared; 95 % are needed</label>
      <meter id={`coverage-${name}`} min={0} max={100} low={95} optimum={100} value={coverage} />
      <dl class="facts">
        {[['compared', count(num(run.compared))], ['good', count(num(run.good))], ['bad', count(num(run.bad))], ['to look at', count(num(run.look))], ['noise', count(num(run.noise))], ['unchecked', count(num(run.unchecked))],
          ['sessions', count(num(run.sessions))], ['given up', count(num(run.given_up))], ['skipped', count(num(run.skipped))], ['behind', millis(num(run.behind_ms))]].map(([label, value]) => <div key={label}><dt>{label}</dt><dd>{value}</dd></div>)}
      </dl>
      <h3>Differences, the worst first</h3>
      {hasValues && found.length > 0 && <label class="inline"><input type="checkbox" checked={values} onChange={(event) => setValues(event.currentTarget.checked)} /> show statements with their values</label>}
      <Table name={`rehearsal-${name}`} caption={`Differences of ${name}`} rows={found} id={(one) => `${one.name} ${one.digest.digest}`} sort="rank" filter={found.length > 8} empty="No difference was found." mark={(one) => (one.weight === 'bad' ? 'alarm' : undefined)} columns={[
        { key: 'rank', label: 'Class', value: (one) => one.rank, show: (one) => <Pill kind={SIGNS[one.weight]} text={one.name} />, title: 'The worst first' },
        { key: 'times', label: 'Times', num: true, value: (one) => one.times, show: (one) => count(one.times) },
        { key: 'text', label: 'Statement', long: true, value: (one) => one.digest.digest_text, show: (one) => <code>{one.digest.digest_text}</code> },
        { key: 'means', label: 'Means', wide: true, value: (one) => (one.weight === 'ignored' ? one.digest.ignored_by : one.means) },
        { key: 'p50', label: 'p50', num: true, wide: true, value: (one) => one.digest.shadow_p50_us, show: (one) => `${micros(num(one.digest.original_p50_us))} → ${micros(num(one.digest.shadow_p50_us))}`, title: 'Median time of the original and the shadow' },
        { key: 'samples', label: 'Samples: original, shadow', long: true, value: (one) => one.samples.map((sample) => `${sample.original} / ${told(sample)}`).join('; '), show: (one) => <Samples samples={one.samples} values={values} told={told} /> },
      ]} />
      {plans.length > 0 && <>
        <h3>Plans of slower and differing statements</h3>
        <Table name={`plans-${name}`} caption={`Plans of ${name}`} rows={plans} id={(plan) => plan.digest ?? ''} sort="reason" filter={plans.length > 8} empty="No plan is known." columns={[
          { key: 'reason', label: 'Reason', value: (plan) => plan.reason },
          { key: 'text', label: 'Statement', long: true, value: (plan) => plan.digest_text, show: (plan) => <code>{plan.digest_text}</code> },
          { key: 'change', label: 'On the shadow', long: true, value: (plan) => plan.change || 'no difference' },
          { key: 'original', label: 'Plan of the original', long: true, wide: true, value: (plan) => plan.original_plan },
          { key: 'shadow', label: 'Plan of the shadow', long: true, wide: true, value: (plan) => plan.shadow_plan },
        ]} />
      </>}
    </section>
  );
}

/** The server's text of an error can hold values. */
const withoutText = (answer: string): string => answer.replace(/^(error \d+): .*$/s, '$1');

function Samples({ samples, values, told }: { samples: Rec[]; values: boolean; told: (sample: Rec) => string }) {
  if (!samples.length) return <span class="muted">none was kept</span>;
  return (
    <ul class="samples">
      {samples.map((sample, at) => (
        <li key={at}>
          {values && <code>{sample.statement}</code>} {sample.original} <b>/</b> {told(sample)} <span class="muted">{sample.username}{sample.schemaname ? ` in ${sample.schemaname}` : ''}, {clock(num(sample.seen_at) * 1_000)}</span>
        </li>
      ))}
    </ul>
  );
}
