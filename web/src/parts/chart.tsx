// One line chart over time, drawn by uPlot.
import { useEffect, useRef } from 'preact/hooks';
import uPlot from 'uplot';
import { useStore } from '../store';
import { bytes } from '../format';
import { colour, theme } from '../theme';

export interface Line { label: string; colour: string; values: (number | null)[]; dash?: boolean }
interface Props { title: string; at: number[]; lines: Line[]; unit: (value: number) => string; height?: number; span_ms?: number }

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
    const options: uPlot.Options = {
      width: Math.max(200, element.clientWidth),
      height,
      ms: 1,
      legend: { show: true, live: true },
      cursor: { y: false, points: { size: 6 }, sync: { key: 'tidegate' } },
      scales: { x: { time: true, range: () => range(latest.current) }, y: { range: (_, __, most) => [0, Math.max(1, most || 0) * 1.08] } },
      axes: [{ ...axis, size: 28, values: (_, ticks) => ticks.map(time) }, { ...axis, size: 58, ...(props.unit === bytes ? { incrs: BINARY } : {}), values: (_, ticks) => ticks.map((tick) => latest.current.unit(tick)) }],
      series: [
        { label: 'time', value: (_, value) => (value === null ? '' : time(value)) },
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
    const frame = requestAnimationFrame(() => { if (made && made === plot.current && (made.cursor.left ?? -1) < 0) made.setLegend({ idx: props.at.length - 1 }); });
    return () => cancelAnimationFrame(frame);
  });
  const said = props.lines.map((line) => { const value = line.values.findLast((one) => one !== null); return `${line.label} ${value === null || value === undefined ? 'unknown' : props.unit(value)}`; }).join(', ');
  return (
    <figure class="chart">
      <figcaption>{props.title}</figcaption>
      <div ref={box} role="img" aria-label={`${props.title}, now: ${said}`} />
    </figure>
  );
}

/** Steps of an axis in bytes: 1, 2, 4, ... of each unit. */
const BINARY = Array.from({ length: 46 }, (_, power) => 2 ** power);
const two = (n: number): string => String(n).padStart(2, '0');
const time = (ms: number): string => { const t = new Date(ms); return `${two(t.getHours())}:${two(t.getMinutes())}${t.getSeconds() ? `:${two(t.getSeconds())}` : ''}`; };
const data = (props: Props): uPlot.AlignedData => [props.at, ...props.lines.map((line) => line.values)];
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
