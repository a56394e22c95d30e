// Proxies that share a configuration: versions, revisions, drift.
import type { Rec } from '../api';
import { clock, num } from '../format';
import { rowsOf, useView } from '../live';
import { Act } from '../parts/act';
import { Table } from '../parts/table';
import { Part, Pill, View } from '../parts/view';

const time = (value: string | null | undefined): string => (!value || !/^\d+$/.test(value) ? value ?? '–' : clock(num(value) > 1e11 ? num(value) : num(value) * 1_000));
const stateOf = (row: Rec): 'bad' | 'warn' | 'ok' => (row.error ? 'bad' : row.applied !== row.wanted ? 'warn' : 'ok');

export function Proxies() {
  const live = useView('proxies');
  const proxies = rowsOf(live.data, 'proxies');
  const wanted = [...new Set(proxies.map((row) => row.wanted))].sort((a, b) => num(a) - num(b));
  const versions = new Set(proxies.map((row) => row.version));
  return (
    <View name="proxies" title="Proxies" live={live} intro="Who shares a configuration with this proxy, which revision each has in force, and why one differs.">
      {(data) => (
        <>
          {versions.size > 1 && <div class="banner warn"><b>{versions.size} versions</b> run side by side ({[...versions].join(', ')}): set nothing that the older one does not know.</div>}
          {wanted.length > 1 && (
            <div class="banner info">
              <b>Revisions {wanted.join(' and ')} are wanted side by side:</b> some proxies try a change first (CONFIG ROLLOUT).
              {' '}<Act label="Put it in force everywhere…" of={() => ({ title: `Put revision ${wanted.at(-1)} in force everywhere`, verb: 'Promote', effect: () => <p>All proxies take revision {wanted.at(-1)}, each after its own check.</p>, sql: () => ['CONFIG PROMOTE'] })} />
              {' '}<Act label="Take it back…" quiet of={() => ({ title: `Take revision ${wanted.at(-1)} back`, verb: 'Abort', danger: true, effect: () => <p>The proxies that try revision {wanted.at(-1)} go back to the configuration that the others have.</p>, sql: () => ['CONFIG ABORT'] })} />
            </div>
          )}
          {proxies.filter((row) => stateOf(row) !== 'ok').map((row) => <div key={row.uuid} class={`banner ${stateOf(row)}`}><b>{row.name}</b> has revision {row.applied || 'none'} in force, wanted is {row.wanted || 'none'}. {row.error || 'It has not taken it yet.'}</div>)}
          <Part data={data} of="proxies" title="Proxies with this configuration">
            <Table name="proxies" caption="Proxies" filter={proxies.length > 8} rows={proxies} id={(row) => row.uuid ?? row.name ?? ''} sort="name" mark={(row) => (stateOf(row) === 'bad' ? 'alarm' : undefined)}
              empty={<><p>This proxy does not share its configuration.</p><p class="muted">To share: set <code>admin-shared_config_endpoints</code> (etcd) and <code>admin-shared_config_cluster</code>, or list each other in <code>proxysql_servers</code>. A LOAD on any of them is then in force on all.</p></>}
              columns={[
                { key: 'name', label: 'Proxy', value: (row) => row.name, show: (row) => <>{row.name} {row.is_this === '1' && <span class="tag">this one</span>}</> },
                { key: 'state', label: 'State', value: stateOf, show: (row) => <Pill kind={stateOf(row)} text={{ ok: 'in step', warn: 'behind', bad: 'refuses' }[stateOf(row)]} /> },
                { key: 'version', label: 'Version', value: (row) => row.version },
                { key: 'applied', label: 'In force', num: true, value: (row) => row.applied },
                { key: 'wanted', label: 'Wanted', num: true, value: (row) => row.wanted },
                { key: 'since', label: 'Since', value: (row) => row.since, show: (row) => time(row.since) },
                { key: 'address', label: 'Admin port', wide: true, value: (row) => row.address },
                { key: 'error', label: 'What is wrong', long: true, value: (row) => row.error ?? '' },
              ]} />
          </Part>
          {rowsOf(data, 'peers').length > 0 && (
            <Part data={data} of="peers" title="Peers in proxysql_servers">
              <Table name="peers" caption="Peers" rows={rowsOf(data, 'peers')} id={(row) => JSON.stringify(row)} columns={(data.results.peers?.columns ?? []).map((name) => ({ key: name, label: name, value: (row: Rec) => row[name] }))} />
            </Part>
          )}
          <Part data={data} of="checksums" title="What is in force here" note="Two proxies with the same checksum have the same module in force.">
            <Table name="checksums" caption="Checksums of modules" filter={false} rows={rowsOf(data, 'checksums')} id={(row) => row.name ?? ''} sort="name" columns={[
              { key: 'name', label: 'Module', value: (row) => row.name },
              { key: 'version', label: 'Loads', num: true, value: (row) => row.version },
              { key: 'epoch', label: 'Last load', value: (row) => row.epoch, show: (row) => time(row.epoch) },
              { key: 'checksum', label: 'Checksum', value: (row) => row.checksum, show: (row) => <code>{row.checksum}</code> },
            ]} />
          </Part>
        </>
      )}
    </View>
  );
}
