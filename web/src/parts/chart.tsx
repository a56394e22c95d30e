// One line chart over time, drawn by uPlot. Durations spread over decades: their scale is logarithmic.
import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import { useStore } from '../store';
import { bytes, micros } from '../format';
import { colour, theme } from '../theme';
import { type Mark, drawMarks } from './marks';

export interface Line { label: string; colour: string; values: (number | null)[]; dash?: boolean }
interface Props { title: string; at: number[]; lines: Line[]; unit: (value: number) => string; height?: number; span_ms?: number; marks?: Mark[] }

export function Chart(props: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const now = useStore(theme);
  const latest = useRef(props);
  latest.current = props;
  const shape = props.lines.map((line) => line.label).join('|');
  useEffect(() => {
    const element = box.current;
    if (!element) return;
    const height = props.height ?? 150;
    const grid = { stroke: colour('--line'), width: 1 };
    const axis = { stroke: colour('--muted'), grid, ticks: { ...grid, size: 4 }, font: '11px system-ui, sans-serif' };
    const isLog = props.unit === micros;
    const span = (made: uPlot) => (made.scales.x?.max ?? 0) - (made.scales.x?.min ?? 0);
    const options: uPlot.Options = {
      width: Math.max(200, element.clientWidth),
      height,
      ms: 1,
      plugins: [drawMarks(() => latest.current.marks ?? [])],
      legend: { show: true, live: true },
      cursor: { y: false, points: { size: 6 }, sync: { key: 'tidegate' } },
      scales: { x: { time: true, range: () => range(latest.current) }, y: isLog ? { distr: 3, range: (_, least, most) => decades(least, most) } : { range: (_, __, most) => [0, Math.max(1, most || 0) * 1.08] } },
      axes: [
        { ...axis, size: 28, space: 60, incrs: STEPS_MS, values: (made, ticks) => ticks.map((tick) => time(tick, span(made))) },
        { ...axis, size: 58, incrs: props.unit === bytes ? BINARY : DECIMAL, ...(isLog ? { splits: (_: uPlot, __: number, least: number, most: number) => logTicks(least, most), filter: (_: uPlot, ticks: number[]) => ticks } : {}), values: (_, ticks) => ticks.map((tick) => latest.current.unit(tick)) },
      ],
      series: [
        { label: 'time', value: (made, value) => (value === null ? '' : time(value, span(made))) },
        ...props.lines.map((line): uPlot.Series => ({ label: line.label, stroke: colour(line.colour), width: 1.5, points: { show: false }, ...(line.dash ? { dash: [5, 3] } : {}), value: (_, value) => (value === null || value === undefined ? '–' : latest.current.unit(value)) })),
      ],
    };
    const made = new uPlot(options, data(latest.current), element);
    plot.current = made;
    const watch = new ResizeObserver(() => made.setSize({ width: Math.max(200, element.clientWidth), height }));
    watch.observe(element);
    return () => { watch.disconnect(); made.destroy(); plot.current = null; };
  }, [now, shape, props.height]);
  useEffect(() => {
    const made = plot.current;
    made?.setData(data(props));
    // Without a pointer over it the legend has the newest values.
    const newest = [props.at.length - 1, ...props.lines.map(newestOf)];
    const frame = requestAnimationFrame(() => { if (made && made === plot.current && (made.cursor.left ?? -1) < 0) made.setLegend({ idxs: newest.map((at) => (at < 0 ? null : at)) as number[] }); });
    return () => cancelAnimationFrame(frame);
  });
  const said = props.lines.map((line) => { const value = line.values[newestOf(line)]; return `${line.label} ${value === null || value === undefined ? 'unknown' : props.unit(value)}`; }).join(', ');
  return (
    <figure class="chart">
      <figcaption>{props.title}{props.unit === micros && <span class="muted"> · log scale</span>}</figcaption>
      <div ref={box} role="img" aria-label={`${props.title}, now: ${said}`} />
    </figure>
  );
}

/** Steps of an axis in bytes: 1, 2, 4, ... of each unit. */
const BINARY = Array.from({ length: 46 }, (_, power) => 2 ** power);
/** Whole steps, coarse enough that two ticks never read alike: 1, 2, 5, 10, ... */
const DECIMAL = Array.from({ length: 15 }, (_, power) => [1, 2, 5].map((step) => step * 10 ** power)).flat();
const STEPS_MS = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400, 172_800, 604_800].map((seconds) => seconds * 1_000);
const DAY_MS = 86_400_000;
const two = (n: number): string => String(n).padStart(2, '0');
const time = (ms: number, span_ms: number): string => {
  const t = new Date(ms);
  const day = span_ms > DAY_MS ? `${two(t.getMonth() + 1)}-${two(t.getDate())} ` : '';
  return `${day}${two(t.getHours())}:${two(t.getMinutes())}${t.getSeconds() ? `:${two(t.getSeconds())}` : ''}`;
};
/** The powers of ten around some values: at least one decade. */
function decades(least: number | null, most: number | null): [number, number] {
  const from = Math.floor(Math.log10(least || 1_000));
  return [10 ** from, 10 ** Math.max(from + 1, Math.ceil(Math.log10(most || 1_000)))];
}
/** Ticks of a log scale: 1, 2 and 5 of each decade, or fewer where there are many decades. */
function logTicks(least: number, most: number): number[] {
  const [from, to] = [Math.round(Math.log10(least)), Math.round(Math.log10(most))];
  const steps = to - from > 3 ? [1] : to - from > 1 ? [1, 3] : [1, 2, 5];
  return Array.from({ length: to - from + 1 }, (_, at) => steps.map((step) => step * 10 ** (from + at))).flat().filter((tick) => tick <= most);
}
/** Where the newest value is: among the last points, for what is older is not so now. -1 for none. */
const FRESH = 5;
const newestOf = (line: Line): number => {
  const at = line.values.findLastIndex((one) => one !== null);
  return at >= line.values.length - FRESH ? at : -1;
};
/** A log scale has no place for 0. */
const data = (props: Props): uPlot.AlignedData => [props.at, ...props.lines.map((line) => (props.unit === micros ? line.values.map((value) => value || null) : line.values))];
function range(props: Props): [number, number] {
  const end = props.at.at(-1) ?? Date.now();
  return [props.span_ms ? end - props.span_ms : props.at[0] ?? end - 60_000, end];
}

/** A small curve beside a number. */
export function Spark({ values, label }: { values: (number | null)[]; label: string }) {
  const known = values.map((value) => value ?? 0);
  const most = Math.max(...known, 1e-9);
  const points = known.map((value, at) => `${(at * 100 / Math.max(1, known.length - 1)).toFixed(1)},${(23 - value * 22 / most).toFixed(1)}`).join(' ');
  return known.length < 2 ? null : <svg class="spark" viewBox="0 0 100 24" preserveAspectRatio="none" role="img" aria-label={label}><polyline points={points} fill="none" stroke="currentColor" stroke-width="1.5" vector-effect="non-scaling-stroke" /></svg>;
}
