// The place in the page: #/view/rest?key=value.
import { Store, useStore } from './store';

export interface Place { view: string; rest: string; query: URLSearchParams }

function read(): Place {
  const [path = '', query = ''] = location.hash.replace(/^#\/?/, '').split('?');
  const [view = '', ...rest] = path.split('/').map((part) => { try { return decodeURIComponent(part); } catch { return part; } });
  return { view: view || 'now', rest: rest.join('/'), query: new URLSearchParams(query) };
}

const place = new Store(read());
window.addEventListener('hashchange', () => place.set(read()));
export const usePlace = (): Place => useStore(place);
export const href = (view: string, rest = '', query: Record<string, string> = {}): string => {
  const search = new URLSearchParams(query).toString();
  return `#/${view}${rest ? `/${encodeURIComponent(rest)}` : ''}${search ? `?${search}` : ''}`;
};
export const go = (target: string): void => { location.hash = target; };
