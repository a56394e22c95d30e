// Why not shared: sessions that keep a connection, by reason and by statement.
import { useState } from 'preact/hooks';
import type { Rec } from '../api';
import { count, groups, millis, num } from '../format';
import { rowsOf, useView } from '../live';
import * as orders from '../orders';
import { Act } from '../parts/act';
import { Table } from '../parts/table';
import { Part, View } from '../parts/view';
import { REASONS } from '../reasons';
import { href } from '../route';

const sessionsOf = (rows: Rec[]): number => new Set(rows.map((row) => row.session)).size;

export function Pins() {
  const live = useView('pins');
  const [short, setShort] = useState(false);
  const all = rowsOf(live.data, 'pins');
  const pins = short ? all : all.filter((row) => row.reason !== 'transaction' || num(row.since_ms) > 1_000);
  const used = rowsOf(live.data, 'pool').reduce((sum, row) => sum + num(row.used), 0);
  const free = rowsOf(live.data, 'pool').reduce((sum, row) => sum + num(row.free), 0);
  const reasons = [...groups(pins, (row) => row.reason ?? '')].sort((a, b) => b[1].length - a[1].length);
  const totals = new Map(rowsOf(live.data, 'summary').map((row) => [row.reason, row]));
  const digests = [...groups(pins, (row) => `${row.reason} ${row.digest}`).values()];
  return (
    <View name="pins" title="Why not shared" live={live} intro="A pinned session keeps its server connection; all others share theirs. This is what pins cost, what began them, and what to change.">
      {(data) => (
        <>
          <p class="sum">
            <b>{sessionsOf(pins)}</b> of {used} {used === 1 ? 'connection' : 'connections'} in use {sessionsOf(pins) === 1 ? 'is kept by one session' : 'are kept by one session each'} ({free} free).
            {' '}<label class="inline"><input type="checkbox" checked={short} onChange={(event) => setShort(event.currentTarget.checked)} /> with transactions of less than a second</label>
          </p>
          <Part data={data} of={['summary', 'pins']} title="By reason">
            {reasons.length === 0 && <div class="empty">No session keeps a connection: all are shared.</div>}
            <ul class="reasons">
              {reasons.map(([reason, rows]) => {
                const known = REASONS[reason];
                const total = totals.get(reason);
                const held = sessionsOf(rows);
                return (
                  <li key={reason}>
                    <h3>{reason}</h3>
                    <p class="cost"><b>{held}</b> {held === 1 ? 'connection' : 'connections'}{used > 0 && <>, {Math.round(held * 100 / used)} % of those in use</>}; the longest for {millis(Math.max(...rows.map((row) => num(row.since_ms))))}; {count(num(total?.began_total))} began since the start</p>
                    <meter min={0} max={Math.max(1, used)} value={held} aria-label={`Connections that ${reason} keeps`} />
                    {known && <dl><div><dt>begins with</dt><dd>{known.begins}</dd></div><div><dt>ends with</dt><dd>{known.ends}</dd></div><div><dt>what to change</dt><dd><b>{known.change}</b></dd></div></dl>}
                  </li>
                );
              })}
            </ul>
          </Part>
          <Part data={data} of="pins" title="By statement" note="The statement that began the pin: this is what to look for in the application.">
            <Table name="pins-digests" caption="Pins by statement" rows={digests} id={(rows) => `${rows[0]?.reason} ${rows[0]?.digest}`} sort="-sessions" empty="No statement has pinned a session." columns={[
              { key: 'text', label: 'Statement', long: true, value: (rows) => rows[0]?.digest_text, show: (rows) => (rows[0]?.digest ? <a href={href('statements', rows[0].digest)}><code>{rows[0].digest_text}</code></a> : <span class="muted">no statement</span>) },
              { key: 'reason', label: 'Reason', value: (rows) => rows[0]?.reason },
              { key: 'sessions', label: 'Connections', num: true, value: sessionsOf },
              { key: 'users', label: 'Users', wide: true, value: (rows) => [...new Set(rows.map((row) => row.user))].join(', ') },
              { key: 'longest', label: 'Longest', num: true, value: (rows) => Math.max(...rows.map((row) => num(row.since_ms))), show: (rows) => millis(Math.max(...rows.map((row) => num(row.since_ms)))) },
            ]} />
          </Part>
          <Part data={data} of="pins" title="Sessions">
            <Table name="pins" caption="Pinned sessions" rows={pins} id={(row) => `${row.session} ${row.reason}`} sort="-since" empty="No session is pinned." columns={[
              { key: 'session', label: 'Session', num: true, value: (row) => row.session, show: (row) => <a href={href('sessions', row.session ?? '')}>{row.session}</a> },
              { key: 'user', label: 'User', value: (row) => row.user },
              { key: 'client', label: 'Client', wide: true, value: (row) => row.client },
              { key: 'reason', label: 'Reason', value: (row) => row.reason },
              { key: 'since', label: 'For', num: true, value: (row) => num(row.since_ms), show: (row) => millis(num(row.since_ms)) },
              { key: 'server', label: 'Server', wide: true, value: (row) => `${row.hostgroup}/${row.server}` },
              { key: 'text', label: 'Begun by', long: true, value: (row) => row.digest_text, show: (row) => <code>{row.digest_text}</code> },
              { key: 'act', label: '', value: () => null, show: (row) => <Act quiet label="End…" about={`session ${row.session}`} of={() => orders.kill({ SessionID: row.session ?? null, user: row.user ?? null, cli_host: row.client ?? null, command: 'Sleep' }, [row.reason ?? ''])} /> },
            ]} />
          </Part>
        </>
      )}
    </View>
  );
}
