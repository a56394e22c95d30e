// A table that sorts, filters and can be taken along as CSV. On a phone each row is a card.
import type { ComponentChildren } from 'preact';
import { useState } from 'preact/hooks';
import type { Cell } from '../api';
import { csv } from '../format';

export interface Column<R> {
  key: string;
  label: string;
  /** What is sorted, filtered and exported. */
  value: (row: R) => string | number | null | undefined;
  /** What is shown, where it is not the value. */
  show?: (row: R) => ComponentChildren;
  num?: boolean;
  /** Left out on narrow screens. */
  wide?: boolean;
  /** Text that may be long: it gets the room that is left. */
  long?: boolean;
  /** Said once above the table where all rows have the same value. */
  fold?: boolean;
  title?: string;
}

interface Props<R> {
  name: string;
  caption: string;
  columns: Column<R>[];
  rows: R[];
  id: (row: R) => string;
  sort?: string;
  empty?: ComponentChildren;
  filter?: boolean;
  /** Makes rows open something; the first column is the button. */
  open?: (row: R) => void;
  chosen?: string | null;
  mark?: (row: R) => string | undefined;
  tools?: ComponentChildren;
}

const SHOWN_AT_FIRST = 200;
/** Order and filter of each table, kept while the page is open. */
const kept = new Map<string, { sort: string; filter: string }>();

function compare(a: string | number | null | undefined, b: string | number | null | undefined): number {
  if (a === b) return 0;
  if (a === null || a === undefined || a === '') return -1;
  if (b === null || b === undefined || b === '') return 1;
  const [x, y] = [Number(a), Number(b)];
  if (Number.isFinite(x) && Number.isFinite(y)) return x - y;
  return String(a).localeCompare(String(b), 'en', { numeric: true });
}

export function Table<R>(props: Props<R>) {
  const old = kept.get(props.name) ?? { sort: props.sort ?? '', filter: '' };
  const [state, setState] = useState(old);
  const [all, setAll] = useState(false);
  const change = (next: typeof old) => { kept.set(props.name, next); setState(next); };
  const down = state.sort.startsWith('-');
  const folded = props.columns.filter((column) => column.fold && props.rows.length > 1 && props.rows.every((row) => column.value(row) === column.value(props.rows[0] as R)));
  const said = folded.map((column) => [column.label, column.value(props.rows[0] as R)]).filter(([, value]) => value).map((pair) => pair.join(' ')).join(', ');
  const columns = props.columns.filter((column) => !folded.includes(column));
  const by = props.columns.find((column) => column.key === state.sort.replace('-', ''));
  const words = state.filter.toLowerCase().split(/\s+/).filter(Boolean);
  const texts = (row: R) => props.columns.map((column) => String(column.value(row) ?? '')).join(' ').toLowerCase();
  let rows = words.length ? props.rows.filter((row) => { const text = texts(row); return words.every((word) => text.includes(word)); }) : props.rows;
  if (by) rows = [...rows].sort((a, b) => compare(by.value(a), by.value(b)) * (down ? -1 : 1));
  const shown = all ? rows : rows.slice(0, SHOWN_AT_FIRST);
  const firstOf = (column: Column<R>) => (column.num ? `-${column.key}` : column.key);
  const press = (column: Column<R>) => {
    const first = firstOf(column);
    const second = column.num ? column.key : `-${column.key}`;
    change({ ...state, sort: state.sort === first ? second : first });
  };
  const save = () => {
    const text = csv(props.columns.map((column) => column.label), rows.map((row) => props.columns.map((column): Cell => { const value = column.value(row); return value === null || value === undefined ? null : String(value); })));
    const link = document.createElement('a');
    link.href = URL.createObjectURL(new Blob([text], { type: 'text/csv' }));
    link.download = `tidegate-${props.name}.csv`;
    link.click();
    window.setTimeout(() => URL.revokeObjectURL(link.href), 1_000);
  };
  if (!props.rows.length) return <div class="empty">{props.empty ?? 'There are no rows.'}</div>;
  return (
    <div class="tablebox">
      <div class="tools">
        {props.filter !== false && (
          <label class="filter">
            <span class="hidden">Filter: {props.caption}</span>
            <input type="search" data-filter placeholder="Filter" value={state.filter} onInput={(event) => change({ ...state, filter: event.currentTarget.value })} />
          </label>
        )}
        <span class="muted" role="status">{rows.length === props.rows.length ? `${rows.length} ${rows.length === 1 ? 'row' : 'rows'}` : `${rows.length} of ${props.rows.length} rows`}</span>
        {said && <span class="muted">All: {said}</span>}
        <label class="sortby">Order <select value={state.sort} onChange={(event) => change({ ...state, sort: event.currentTarget.value })}>{!by && <option value={state.sort}>as given</option>}{columns.filter((column) => column.label).map((column) => <option key={column.key} value={by === column ? state.sort : firstOf(column)}>{column.label}</option>)}</select></label>
        <span class="gap" />
        {props.tools}
        <button type="button" class="quiet" onClick={save}>CSV<span class="hidden"> of {props.caption}</span></button>
      </div>
      <div class="scroll" role="region" aria-label={props.caption} tabIndex={0}>
        <table role="table">
          <caption class="hidden">{props.caption}</caption>
          <thead role="rowgroup">
            <tr role="row">
              {columns.map((column) => (
                <th key={column.key} role="columnheader" scope="col" class={classes(column)} title={column.title} aria-sort={by === column ? (down ? 'descending' : 'ascending') : 'none'}>
                  {column.label ? <button type="button" onClick={() => press(column)}>{column.label}<span class="arrow" aria-hidden="true">{by === column ? (down ? '▾' : '▴') : ''}</span></button> : <span class="hidden">Actions</span>}
                </th>
              ))}
            </tr>
          </thead>
          <tbody role="rowgroup">
            {shown.map((row) => {
              const id = props.id(row);
              return (
                <tr key={id} role="row" class={`${props.mark?.(row) ?? ''}${props.chosen === id ? ' chosen' : ''}${props.open ? ' opens' : ''}`} onClick={props.open && ((event: MouseEvent) => { if (!(event.target as Element).closest('button, a')) props.open?.(row); })}>
                  {columns.map((column, at) => {
                    const inner = column.show ? column.show(row) : plain(column.value(row));
                    return <td key={column.key} role="cell" class={classes(column)} data-label={column.label}>{at === 0 && props.open ? <button type="button" class="link" aria-pressed={props.chosen === id} onClick={() => props.open?.(row)}>{inner}</button> : inner}</td>;
                  })}
                </tr>
              );
            })}
          </tbody>
        </table>
      </div>
      {!rows.length && <div class="empty">No row has “{state.filter}”. <button type="button" class="quiet" onClick={() => change({ ...state, filter: '' })}>Show all</button></div>}
      {rows.length > shown.length && <p class="more"><button type="button" class="quiet" onClick={() => setAll(true)}>Show all {rows.length} rows</button></p>}
    </div>
  );
}

const classes = <R,>(column: Column<R>): string => [column.label ? '' : 'acts', column.num ? 'num' : '', column.wide ? 'wide' : '', column.long ? 'long' : ''].filter(Boolean).join(' ');
export const plain = (value: string | number | null | undefined): ComponentChildren => (value === null || value === undefined ? <span class="muted">NULL</span> : String(value));
