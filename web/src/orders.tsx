// Orders of the admin port as actions: what each will do, in words, and its SQL.
import type { Rec } from './api';
import { millis, num, quote } from './format';
import type { Action, Field } from './parts/act';

const timeout = (value: string, what: string): Field => ({ name: 'timeout', label: 'Time limit, ms', value, kind: 'number', hint: what, check: (text) => (/^\d{1,8}$/.test(text) ? null : { level: 'error', text: 'A number of milliseconds is needed.' }) });

export interface Blocker { session: string; user: string; reason: string }

export function switchover(hostgroup: string, target: string, known: { writer: string; kind: string; manages: boolean; limit: string; blockers: Blocker[]; lag: string | null }): Action {
  return {
    title: `Make ${target} the writer of hostgroup ${hostgroup}`,
    verb: 'Switch over',
    steps: true,
    fields: [timeout(known.limit, 'At the deadline everything is put back.')],
    effect: (values) => (
      <>
        <ul>
          <li>New work in hostgroup {hostgroup} waits at transaction boundaries; clients see a pause, no error.</li>
          <li>{target} gets everything that {known.writer || 'the writer'} has{known.lag ? ` (it is ${known.lag} behind now)` : ''}, then roles change and work goes on.</li>
          <li>If it is not done after {millis(num(values.timeout))}, everything is put back and the answer says why.</li>
          {known.kind === 'replication' && <li>The old writer and the replicas then follow it (mysql-switchover_repoints), or the answer names the servers to point to {target}.</li>}
          {known.kind === 'replication' && <li>{known.manages ? 'Tidegate sets read_only on both servers (mysql-switchover_manages_read_only is true).' : <><b>Tidegate does not set read_only</b> (mysql-switchover_manages_read_only is false): somebody else must do so in the meantime, or it will be put back.</>}</li>}
        </ul>
        {known.blockers.length > 0 && (
          <div class="banner warn">
            <b>It will be refused at once</b> as long as {known.blockers.length === 1 ? 'this session keeps its connection' : `these ${known.blockers.length} sessions keep their connections`} for more than a transaction:
            <ul>{known.blockers.slice(0, 6).map((one) => <li key={one.session + one.reason}>session {one.session} ({one.user}): {one.reason}</li>)}</ul>
            They must end first; Sessions can end them.
          </div>
        )}
      </>
    ),
    sql: (values) => [`SWITCHOVER HOSTGROUP ${hostgroup} TO ${quote(target)} TIMEOUT ${values.timeout}${known.kind === 'replication' && !known.manages ? ' WAIT FOR READ_ONLY' : ''}`],
  };
}

export const failback = (hostgroup: string): Action => ({
  title: `Let the preferred server of hostgroup ${hostgroup} write again`,
  verb: 'Fail back',
  steps: true,
  effect: () => <p>The best server (a row in the writer hostgroup, then the greatest weight) writes again, if it can. What a SWITCHOVER preferred is forgotten. If there is no better server, nothing is changed and the answer says so.</p>,
  sql: () => [`FAILBACK HOSTGROUP ${hostgroup}`],
});

export const pause = (hostgroup: string, users: number): Action => ({
  title: `Pause hostgroup ${hostgroup}`,
  verb: 'Pause',
  danger: true,
  steps: true,
  effect: () => (
    <ul>
      <li>Nothing new begins in hostgroup {hostgroup}; open transactions go on. {users ? `${users} connections are in use there now.` : 'No connection is in use there now.'}</li>
      <li>Statements wait in order. Those that wait longer than mysql-connect_timeout_server_max fail with error 9001.</li>
      <li>It lasts until RESUME, also over a LOAD.</li>
    </ul>
  ),
  sql: () => [`PAUSE HOSTGROUP ${hostgroup}`],
});

export const resume = (hostgroup: string): Action => ({
  title: `Resume hostgroup ${hostgroup}`,
  verb: 'Resume',
  steps: true,
  effect: () => <p>What waits in hostgroup {hostgroup} begins, in order.</p>,
  sql: () => [`RESUME HOSTGROUP ${hostgroup}`],
});

export const drain = (address: string, used: number, others: number): Action => ({
  title: `Drain ${address}`,
  verb: 'Drain',
  steps: true,
  danger: true,
  fields: [timeout('10000', 'How long to wait until nothing runs there. It stays drained also after the limit; 0 answers at once.')],
  effect: () => (
    <ul>
      <li>Nothing new goes to {address} in any hostgroup. {used ? `${used} connections to it are in use now; what runs there may finish.` : 'No connection to it is in use now.'}</li>
      <li>{others ? `${others} other ${others === 1 ? 'server takes' : 'servers take'} over its work in its hostgroups.` : <b>No other server is ONLINE in one of its hostgroups: statements there will wait, then fail with error 9001.</b>}</li>
      <li>It is OFFLINE_SOFT until UNDRAIN. If it writes, another server writes only where the proxy chooses the writer.</li>
    </ul>
  ),
  sql: (values) => [`DRAIN SERVER ${quote(address)} TIMEOUT ${values.timeout}`],
});

export const undrain = (address: string): Action => ({
  title: `Use ${address} again`,
  verb: 'Undrain',
  steps: true,
  effect: () => <p>New work goes to {address} again, as its checks and its weight say.</p>,
  sql: () => [`UNDRAIN SERVER ${quote(address)}`],
});

export const kill = (row: Rec, pins: string[]): Action => ({
  title: `End session ${row.SessionID}`,
  verb: 'End the session',
  danger: true,
  effect: () => (
    <ul>
      <li>The connection of user {row.user} from {row.cli_host}{row.cli_port && row.cli_port !== '0' ? `:${row.cli_port}` : ''} is closed; its client gets an error with its next statement.</li>
      {row.command !== 'Sleep' && <li>What it runs now ({row.command}, for {millis(num(row.time_ms))}) is ended.</li>}
      {pins.length > 0 && <li>What it keeps is given up: {pins.join(', ')}. An open transaction is rolled back by the server.</li>}
    </ul>
  ),
  sql: () => [`KILL CONNECTION ${row.SessionID}`],
});
