-- The event of a reached limit has a plain name.

UPDATE events SET kind = 'limit.reached' WHERE kind = 'storm.held';
