// A value that components follow.
import { useEffect, useState } from 'preact/hooks';

export class Store<T> {
  #value: T;
  #followers = new Set<() => void>();
  constructor(value: T) { this.#value = value; }
  get(): T { return this.#value; }
  set(value: T): void {
    this.#value = value;
    for (const follower of [...this.#followers]) follower();
  }
  follow(follower: () => void): () => void {
    this.#followers.add(follower);
    return () => { this.#followers.delete(follower); };
  }
}

export function useStore<T>(store: Store<T>): T {
  const [, again] = useState(0);
  useEffect(() => store.follow(() => again((n) => n + 1)), [store]);
  return store.get();
}
