"""Spanish: the word classes that bind, wish, suppose, speak of others, change and withdraw."""

from __future__ import annotations

import re

from serve_app.compress.cues.latin import either
from serve_app.compress.cues.spanish_values import FIGURES, UNITS, VALUES, WORDS, number
from serve_app.compress.cues.table import Cues

_KIN = either(
    "hermano hermana hermanos hermanas padre madre padres papá mamá abuelo abuela abuelos tío tía tíos primo prima primos "
    "sobrino sobrina cuñado cuñada suegro suegra suegros yerno nuera padrastro madrastra padrino madrina ex exmarido exmujer "
    "amigo amiga amigos amigas colega colegas compañero compañera compañeros compañeras vecino vecina vecinos vecinas "
    "novio novia casero inquilino conocido conocida  peluquero peluquera gente alguien tipo señor señora chico "
    "chica pareja madre_de padre_de"
)
_OTHERS = (
    rf"(?:(?:mi|mis|nuestro|nuestra|nuestros|nuestras|su|sus|el|la|los|las|un|una|unos|unas|ese|esa|otro"
    rf"|otra) (?:(?:hijo|hija|marido|mujer|novio|novia) de (?:la|el|mi|un|una) )?"
    rf"(?:[^\W\d_]+ ){{0,2}}?(?:{_KIN})|(?:el|la|los|las) (?:hij[oa]s?|marido|mujer|hermanos?|hermanas?|novi[oa]|perr[oa]|suegr[oa]) de (?:la |el |los |las |mi |un |una |su )?[^\W\d_]+|(?:tía|tío|prima|primo) [^\W\d_]+|\b(?:alguien|la gente))"
)
_SAYS_OF_OTHERS = (
    r"(?:,? (?!que viene|que vienen|y yo|y a mí)[^\W\d_]+){0,4}? (?:no |sí |siempre |nunca |sólo |solo |se "
    r"|le |les |lo |la |me )*"
    r"(?:[^\W\d_]+(?:a|e|an|en|ó|aba|ía|ían|aron|ieron|ado|ido)|es|son|ha|han|va|van|dio|fue|está|están|hizo)\b"
)

SPANISH = Cues(
    language="spanish",
    clause_end=re.compile(
        r";\s|:\s(?=\S)|\s[–—-]{1,2}\s|\.\.\.+\s?|…\s?|\)\s|\s(?=\()"
        r"|,\s(?=(?:pero|y|así|porque|ya|aunque|sino|salvo|excepto|que|entonces|yo|nosotros|mi|nuestro|no|nada"
        r"|nunca|ni|por favor"
        r"|sólo|solo|me|nos|te|se|lo|la|el|los|las|un|una|es|soy|somos|está|hay|tiene|tienen|tengo|pon|haz"
        r"|deja|si|cuando|desde|hasta|antes|después|a|en|con|sin|para|ella|él|ellos|como)\b)"
        r"|\s(?=(?:pero|porque|aunque|así que|ya que|de modo que)\s)"
        r"|\s(?=y (?:yo|me|nos|no|nada|nunca|que|el|la|los|las|mi|pon|haz|por favor|también|además|es|tiene|hay)\b)",
        re.IGNORECASE,
    ),
    binds=re.compile(
        r"\b(?:deb(?:e|en|o|emos|ería|erían|eríamos|ía)\b(?! (?:de )?(?:haber|ser el))|ten(?:go|emos|er) que"
        r"|tien(?:e|en|es) que|tendr(?:á|án|é|emos|ía) que|hay que|habrá que|ha de|han de|he de|hemos de"
        r"|hace falta|es (?:necesario|imprescindible|obligatorio|fundamental|esencial|importante|vital|clave"
        r"|innegociable)|necesit\w+"
        r"|no (?!sé|pasa|hay problema|te preocupes|me digas|importa|creo|me acuerdo|recuerdo|veas)[^\W\d_]+"
        r"|nunca|jamás|nada (?:de|que|con|por|más|menos|en|antes|después|picante|frito)|ni (?:un|una"
        r"|[^\W\d_]+)|ning[uú]n\w*|sin\b|tampoco|salvo|excepto|menos los|evit\w+|exclu\w+|quita\w*|deja(?:d"
        r"|r)? fuera|fuera de|prohib\w+|vetad\w+|descartad\w+|descarta\w*|rechaz\w+|me niego"
        r"|s[oó]lo\b|solamente|únicamente|exclusivamente|nadie|como (?:máximo|mucho|mínimo|muy tarde)|(?:al"
        r"|por lo) menos|a lo sumo|máximo|mínimo|no más de|más de|menos de|hasta\b|tope|límite|presupuesto"
        r"|plazo|fecha límite|vence|caduca|antes de|después de|a partir de|a más tardar|desde las"
        r"|por debajo de|por encima de|entre (?:las|los|el|\d)|dentro de|superar|supere|exced\w+|pas(?:ar|e|en"
        r"|arse) de"
        r"|siempre|cada vez|siempre que|a menos que|a no ser que|siempre y cuando|con tal de|regla|norma"
        r"|obligatori\w+|requisit\w+|permitid\w+|fij[oa]s?\b|definitiv\w+|innegociable|línea roja|imposible"
        r"|bajo ning[uú]n concepto|de ning[uú]n modo|de ninguna manera|en ning[uú]n caso|pase lo que pase"
        r"|sí o sí|asegúrate|que sea|que no|que estén?|quiero que|exijo|insist\w+|prometí|prometid\w+)"
    ),
    implicit=re.compile(
        r"\b(?:alérgic|alergia|intoleran|celíac|celiac|diabét|asm[aá]|epilep|embaraz|lactan|\bvegan|vegetarian"
        r"|\bhalal|kosher|musulm|judí|hind[uú]|cristian|ramadán|cuaresma|ayun|abstemi|no bebo|no como"
        r"|dejé de beber|fe\b|religi|por ética|epinefrina|epipen|anafila|urticaria|sarpullido|ronchas|me hinch"
        r"|se hincha|hospital|urgencias|ambulancia|garganta|migraña|convuls|me sienta[n]? (?:mal|fatal)"
        r"|le sienta[n]? (?:mal|fatal)|me pone[n]? (?:mal|malo|mala)|no (?:tolero|tolera|digiero)|reacciona"
        r"|me da[n]? (?:alergia|arcadas|urticaria|migraña)|silla de ruedas|muletas|bastón|andador|dalt[oó]nic"
        r"|\bsord[oa]|audífono|dislex|\bcieg[oa]|vértigo|claustrofob|fobia|marcapasos|cirugía|operación"
        r"|operad[oa]|rodilla|espalda|cadera|hombro|riñón|hígado|corazón|tensión|úlcera|diagnos|receta"
        r"|médic[oa]|doctor|cardiólog|fisio|dentista|veterinari|pediatra|matrona|anticoagul|metformina"
        r"|insulina|sintrom|medicación|antibiótic|inhalador|turno de noche|guardia\b|visado|confidencial"
        r"|legal(?:mente)?|por ley|contrato|licencia|seguro\b|rgpd)"
    ),
    refusal=re.compile(
        r"\b(?:no,? gracias|no me interesa|paso de|ni hablar|ni loc[oa]|de eso nada|me niego|no quiero"
        r"|no queremos|no acepto|no pienso|odio\b|detesto|no soporto|no aguanto|no trago|no me (?:llames"
        r"|llaméis|ofrezcas|mandes|pongas|propongas|recomiendes|escribas|des|incluyas)|no (?:uses|pongas|metas"
        r"|incluyas|llames|envíes|mandes|compartas|cambies|toques|reserves|compres|añadas|des|dejes|cobres"
        r"|digas|menciones))"
    ),
    directive=re.compile(
        r"^(?:y |pero |pues |entonces |vale |ok |bien |también |ah |sí |bueno |ahora |mejor |solo |sólo "
        r"|por favor ){0,4},? ?(?:pon|ponme|haz|hazlo|usa|reserva|manda|mándame|envía|envíame|apunta|apúntalo"
        r"|anota|guarda|recuerda|busca|quita|añade|incluye|evita|deja|déjalo|cambia|cámbialo|mueve|pasa|sube"
        r"|baja|compra|pide|escribe|llama|avísame|cancela|divide|calcula|ten en cuenta|asegúrate|revisa|elige"
        r"|escoge|entrega|paga|cobra|devuelve|devuélveme|olvida|ignora|limita|redondea|prepara|organiza|planea"
        r"|calcula|imprime|responde|firma|confirma|trata|tómalo|cuenta con|quédate con|ve con|pongamos|digamos"
        r"|dejémoslo|hagamos|vamos con|vayamos)\b"
        r"|\bpor favor\b|\bporfa\b|(?:puedes|podrías|podéis|podría|puede)\b|(?:quiero|queremos|quisiera"
        r"|necesito|necesitamos)\b|que sea[n]?\b|me quedo con|nos quedamos con|decidid[oa]"
    ),
    literal=re.compile(
        r"\b(?:se llama|me llamo|llamad[oa]|nombre|apellido|se escribe|se deletrea|con (?:hache|h|be|uve|v|b"
        r"|zeta|z|s|k|y|doble|tilde|acento|diéresis|ñ|g|j)\b|sin (?:hache|tilde|acento)|referencia|pedido"
        r"|reserva|confirmación|seguimiento|cuenta|póliza|expediente|factura|serie|modelo|socio|pasaporte"
        r"|matrícula|código|clave|pin\b|número|localizador|habitación|vuelo|tren|piso|puerta|dirección|vivo en"
        r"|vivimos en|correo|email|teléfono|móvil|código postal|cumpleaños|aniversario|nací|cita\b"
        r"|programad[oa]|reservad[oa]|empieza|termina|abre|cierra|llega|sale|aterriza|caduca|vence|renueva"
        r"|mide|pesa|talla|cobro|sueldo|nómina|alquiler|hipoteca|cuota|dosis|versión|rama|puerto|tabla"
        r"|columna)\b"
    ),
    lasting=re.compile(
        r"\b(?:alérgic|alergia|intoleran|celíac|celiac|diabét|asm[aá]|epilep|\bvegan|vegetarian|\bhalal|kosher"
        r"|musulm|judí|abstemi|religi|epipen|anafila|dalt[oó]nic|\bsord[oa]|dislex|silla de ruedas|marcapasos"
        r"|claustrofob|fobia|migraña|me llamo|mi (?:nombre|apellido)|llámame|cumpleaños|\bnunca\b|no (?:como"
        r"|bebo|fumo|vuelo|conduzco)|\bsiempre\b|por norma|en general|nunca más|de ahora en adelante"
        r"|a partir de ahora|en el futuro|cada vez)"
    ),
    soft=re.compile(
        r"\b(?:estaría (?:bien|genial|guay)|sería (?:ideal|genial|bonito|estupendo|un puntazo|perfecto|un plus"
        r"|un detalle)|\bidealmente\b|lo ideal|si (?:se )?(?:puede|es posible|pudiera)|a ser posible"
        r"|preferi\w+|prefier\w+|me (?:gusta|gustan|encanta|encantan|gustaría|encantaría|apetece|apetecería"
        r"|hace ilusión|va mejor|viene mejor)|nos (?:gusta|gustan|encanta|gustaría|apetece)|le (?:gusta|gustan"
        r"|encanta|encantan)|mejor si|un plus|no es imprescindible|opcional|me da (?:igual|lo mismo)"
        r"|no me importa|tiro más a|soy más de|puntos extra|quedaría (?:bien|bonito)|no estaría mal|si cabe"
        r"|si hay (?:sitio|suerte)|tampoco pasa nada)"
    ),
    hypothetical=re.compile(
        r"\bsi (?:yo |me |nos |no |lo |la |te |le |se |un día |algún día |alguna vez "
        r"|[^\W\d_]+ ){0,3}?[^\W\d_]*(?:ara|aras|áramos|aran|iera|ieras|iéramos|ieran|iese|iesen|ase|asen|uera"
        r"|uese|éramos)\b|\bsupón(?:gamos)?\b|\bsupongamos|\bimagina(?:te|d|os)?\b|imagínate|hipotétic"
        r"|en teoría|en (?:otra|mi otra|la próxima) vida|en un mundo (?:ideal|perfecto)|soñé|sueño con"
        r"|en (?:mis )?sueños|\bojalá\b|algún día|\bes broma\b|de broma|bromeo|bromeando|estoy de coña|es coña"
        r"|fantase|por decir algo|pongamos por caso|cuando (?:sea|me haga) (?:ric[oa]|mayor|famos[oa]"
        r"|millonari[oa])|cuando me jubile|si me toca|si me tocase|quién pudiera|de haber (?:sabido|tenido)"
        r"|como si\b|en plan broma|a veces (?:pienso|sueño|fantaseo)|si algún día|si fuera por mí"
        r"|ya me gustaría|quizá(?:s)? (?:algún|en unos)|a lo mejor (?:algún|en unos)|si por (?:mí"
        r"|un casual) fuera|medio en broma"
    ),
    unreal=re.compile(
        r"^(?:pero |y |vamos |claro )?(?:no es el caso|no lo soy|no lo es|no la tenemos|no lo tenemos"
        r"|no tenemos|no tengo|es broma|era broma|bromeo|ni de broma|pero no\b|no va a pasar|jaja|ja\b"
        r"|que no\b|ya ves|obviamente no)"
    ),
    third_person=re.compile(rf"\b(?P<who>{_OTHERS}){_SAYS_OF_OTHERS}"),
    outsider=re.compile(
        r"^(?:y |pero |por cierto,? ){0,2}(?:el|la|los|las|un|una|nuestr[oa]|mi) (?!(?:director|motor|ordenador|servidor|computador|valor|color|calor|sector|factor|favor|mejor|error|lector|router|editor|ascensor|interior|comedor|mirador|aspirador[a]?|impresora)\b)"
        r"(?:[^\W\d_]{3,}(?:dor|dora|tor|tora|ero|era|ista|ógrafo|ógrafa|ente|icial|ogo|oga)s?|gente|equipo|empresa|tipo|señora?|alcalde|cura)\b(?: [^\W\d_]+){0,5}? (?:[^\W\d_]+(?:ó|aba|ía|aron|ieron)|es|tiene|tuvo|va|lleva|usa|dice|mandó|hizo|quiere|no|nunca|siempre|odia)\b"
    ),
    absent=re.compile(
        r"\b(?:(?:él |ella |ellos |ellas )?no (?:viene|vienen|vendrá|vendrán|va a venir|estará|estarán"
        r"|come con|cena con|viaja|está invitad|participa|cuenta)|se queda[n]? en (?:casa|su)|está (?:fuera"
        r"|de viaje|trabajando)|vive[n]? en|allá (?:él|ella|ellos)|cosas? suya|es cosa suya|él sabrá"
        r"|ella sabrá|sus cosas|cada (?:uno|cual|loco)|pobre\b|bien por|me alegro por|mejor para|no (?:nos"
        r"|me) afecta|no tiene nada que ver|se va antes|no (?:tomes nota|lo (?:apuntes|anotes))|por cierto|dicho sea de paso|que conste|para (?:él|ella"
        r"|ellos) (?:está )?bien|historia larga|ya (?:él|ella))"
    ),
    participant=re.compile(
        r"\b(?:con nosotros|conmigo|para (?:nosotros|mí y|mi|mis|nuestro|nuestra)|viene[n]? (?:también|con"
        r"|conmigo)|vendrá[n]?|se (?:apunta|apuntan|une|unen)|los (?:dos|tres|cuatro|cinco)|y yo\b|somos\b"
        r"|vamos\b|viajamos|con mi|con mis|está[n]? invitad|en la lista|también come)"
    ),
    person=re.compile(
        rf"\b(?:(?P<who>{_KIN}|marido|mujer|esposo|esposa|hij[oa]s?|niñ[oa]s?|bebé|peques?)|(?P<pronoun>él|ella"
        rf"|ellos|ellas))\b"
    ),
    reports=re.compile(
        r"\b(?:dice[n]?|dijo|dijeron|ha dicho|escribió|llamó|avisó|insiste[n]?|quiere[n]?|pidió|confirmó"
        r"|me ha[n]? (?:dicho|escrito))\b"
    ),
    therefore=re.compile(
        r"^(?:y )?(?:así que|por eso|de modo que|o sea que|por tanto|por lo tanto|pues nada|conque)\b|\bentonces\W*$|\b(?:por eso|por lo que"
        r"|así que)\b"
    ),
    concludes=re.compile(r"\bentonces\W*$|^(?:entonces|pues)\b"),
    instructs=re.compile(
        r"^(?:entonces |pero |pues |por favor ){0,4}(?:llama|llámame|avísame|pregunta|dile|cancela|envía"
        r"|cambia|deja|usa|no (?:hagas|uses|envíes|toques)|devuelve|espera|para|muévelo|pásalo)\b"
    ),
    continues=re.compile(r"^(?:entonces|en ese caso|así)\b|^[^\W\d_]+r?(?:ía|ías|íamos|ían)\b"),
    actual=re.compile(
        r"\b(?:pero (?:de momento|por ahora|ahora|en serio|mientras|pon|haz|deja|no|nunca|que sea|tiene que"
        r"|hay que)|en serio|de momento|por ahora|hablando en serio|en realidad)\b"
    ),
    subjectless=re.compile(
        r"^(?:y |pero |así que )?(?:él|ella|ellos|ellas|su|sus|no (?:puede|come|bebe|quiere|soporta|tolera)"
        r"|nunca|jamás|tiene que|odia|adora|le encanta|le gusta|dice|insiste|sólo|solo|es alérgic|necesita)\b"
    ),
    own=re.compile(
        r"\b(?:yo|me|mi|mis|mío|mía|conmigo|nos|nosotros|nuestr[oa]s?|soy|somos|tengo|tenemos|quiero|queremos"
        r"|necesito|puedo|podemos|estoy|estamos|voy|vamos|he|hemos|\w{2,}(?:amos|emos|imos))\b"
    ),
    question=re.compile(
        r"\?[\"')]*$|^¿|^(?:y |pero |oye |por cierto )?(?:qué|cuál|cuáles|quién|cuándo|cómo|dónde|cuánto"
        r"|cuántos|cuánta|por qué)\b"
    ),
    small_talk=re.compile(
        r"^(?:hola|gracias|muchas gracias|vale|genial|perfecto|buen(?:os|as) (?:días|tardes|noches)|adiós"
        r"|hasta luego|jaja\w*|uf|ay|vaya|qué (?:bien|bueno|pena|risa|calor"
        r"|frío))\b[^\w]*(?:[^\W\d_]+[^\w]*){0,3}$|llovi|llueve|\btráfico\b|qué (?:calor|frío)|el tiempo\b"
    ),
    past=re.compile(
        r"\b(?:ayer|anoche|anteayer|la semana pasada|el (?:mes|año|otro día|lunes|fin de semana) pasado"
        r"|el otro día|hace (?:años|meses|semanas|días|mucho|un rato)|esta mañana|una vez|de pequeñ[oa]"
        r"|antes (?:iba|vivía|tenía)|(?:fui|vi|tuve|encontré|perdí|se me (?:cayó|rompió|olvidó)|compré|comí"
        r"|me (?:encontré|desperté|quedé|caí)|estuve|leí|oí|pasé|tardé|intenté|soñé))\b"
    ),
    change=re.compile(
        r"\b(?:ahora|pod(?:emos|ría|ríamos) (?:llegar|gastar|subir|pagar)|llegar a|nos da para|en vez de|en lugar de|al final|finalmente|en realidad|cambi\w+|nuev[oa]s? (?:plan|fecha"
        r"|hora|presupuesto|límite|número|receta|dirección|precio|plazo)|mejor\b|pas(?:a|an|amos|ar|e) a"
        r"|mov(?:er|emos|ido|ió|e)|muev\w+|adelant\w+|atras\w+|retras\w+|pospuest\w+|posponer|aplaz\w+"
        r"|reprogram\w+|sub(?:e|imos|ir|ió|ido|amos|en)\b|baj(?:a|amos|ar|ó|ado|emos|an)\b|aument\w+|redu\w+"
        r"|ampli\w+|estir\w+|llegamos (?:a|hasta)|se queda en|total,? que|le pongamos|le demos|serán|seremos"
        r"|será\b|somos|ya no|actualiz\w+|correg\w+|corrección|rectific\w+|perdón|quería decir|me (?:equivoqué"
        r"|confundí|he equivocado|lié)|resulta que|pens[aá]ndolo (?:mejor|bien)|sustitu\w+|reemplaz\w+|dej(?:a"
        r"|émoslo|amos) en|quedamos en|se queda en|queda en|hemos (?:decidido|quedado|acordado)|por fin"
        r"|me han (?:dicho|llamado|escrito|avisado)|nos han|me (?:llamó|escribió|avisó|dijo)|ha (?:llamado"
        r"|escrito|dicho)|llamó|escribió|un[oa] (?:más|menos)|se (?:apunta|suma|cae|va|une)|viene también"
        r"|extra|cancel\w+|anul\w+|además|espera|no .{1,20} sino|a partir de (?:enero|febrero|marzo|abril|mayo"
        r"|junio|julio|agosto|septiembre|octubre|noviembre|diciembre|ahora)|cobré|me pagaron|hagamos|pongamos"
        r"|digamos)\b"
    ),
    replacement=re.compile(
        r"\b(?:(?:nos )?quedamos (?!en que)|en vez de|en lugar de|mejor (?:que sean|pon|hazlo|ponlo|dejémoslo|a las|el|la)|cámbia\w+"
        r"|cambia(?:lo|la|mos)? (?:a|por|el|la)|cambio de planes?|he cambiado de (?:idea|opinión)"
        r"|hemos cambiado|pens[aá]ndolo (?:mejor|bien)|me (?:equivoqué|confundí|he equivocado)|quería decir"
        r"|rectific\w+|corrección|pásalo|muévelo|súbelo|bájalo|ya no|al final|se (?:adelanta|atrasa|retrasa"
        r"|pospone|aplaza|ha (?:adelantado|atrasado|retrasado|movido|cambiado))|(?:sube|baja|suben|bajan"
        r"|subimos|bajamos|ampliamos) (?:a|hasta)|ahora (?:es|son|somos|será|serán|tenemos|mejor)|dejémoslo en"
        r"|quedamos en|nuevo (?:plan|presupuesto|límite)|serán\b|seremos\b|olvida)\b"
    ),
    adds=re.compile(
        r"^(?:y|además|también|aparte|encima)\b(?! (?:ahora|mejor))|\b(?:también|tampoco|otro|otra|además)\b"
    ),
    frame=re.compile(
        r"^(?:y |pero |pues |entonces |mejor |al final |por favor |ahora ){0,3}(?P<verb>salimos|salgo|vamos|viajamos|volamos|llegamos|quedamos|comemos|cenamos|empezamos|empieza|pon|ponlo|deja|déjalo|envía|envíalo|manda|mándalo|lleva|llévalo|reserva|usa|guarda|llama|entrega|aparca|pinta|sirve|cobra|paga)\b"
        r"(?:(?: [^\W\d_]+){0,5}? (?P<where>de|desde|a|al|en|con|hacia|por|junto)\b)?"
    ),
    chooses=re.compile(
        r"\b(?:me quedo con|nos quedamos con|(?:prefiero|preferimos|mejor|vamos con|voy con|elijo|quiero|queremos|ponme|dame) (?:el|la|los|las|un|una)|que sea|hagamos|al final)\b"
    ),
    reminder=re.compile(
        r"\b(?:te (?:dije|había dicho|pedí|conté)|tenías apuntad|habíamos (?:dicho|quedado|pedido)|había (?:dicho|pedido)|hace un rato|antes (?:dije|te dije|pedí)|pensaba|íbamos a|iba a)\b"
    ),
    negative=re.compile(
        r"\b(?:no|ni|nunca|jamás|nada|nadie|sin|ning[uú]n\w*|tampoco|ya no|fuera|quita\w*|evit\w+|exclu\w+"
        r"|elimina\w*|cancel\w+|anul\w+|olvid\w+|prohib\w+|descart\w+|odio|detesto|en vez de|en lugar de)\b"
    ),
    withdrawal=re.compile(
        r"\b(?:\bolvida(?:d|te)?\b|pues nada|a la historia|(?:eso|esa|ese|lo) (?:fuera|no va|ya no)"
        r"|fuera (?:eso|lo|la|el)|lo de[^\W\d_]* .{1,30} me da igual|se acabó|\bolvídate|olvídalo|déjalo"
        r"|da igual|no importa (?:ya|lo)|ya no (?:hace falta|importa|es necesario|necesit\w+|quier\w+"
        r"|hay problema|aplica|cuenta)|no hace falta (?:ya|que)|cancela (?:eso|lo|la|el)|quita (?:eso|lo|la"
        r"|el)|ignora (?:eso|lo)|retiro (?:eso|lo)|anula\w*|sin efecto|(?:ya )?(?:puede|puedo|podemos"
        r"|pueden) (?:comer|tomar|volver|usar|beber) .{0,20}|(?:está|están) bien (?:ahora|al final|también)"
        r"|me vale cualquier|cualquier .{1,20} (?:vale|sirve|va bien)|no te preocupes por|ya está resuelto"
        r"|levant\w+|lo que dije|lo de .{1,30} (?:ya no|olvíd|fuera|nada)|nada de lo que dije|dejémoslo"
        r"|ya no viene|se suspende|suspendid\w+|al final no\b|me da (?:ya )?igual|cambié de (?:idea|opinión))"
    ),
    acknowledged=re.compile(
        r"\b(?:anotado|apuntado|entendido|hecho|de acuerdo|vale[,.]|perfecto[,.]|claro[,.]|guardado|registrado"
        r"|lo (?:tendré|tengo|apunto|anoto|añado|pongo|dejo|evito|cambio|guardo)|tomo nota|queda (?:anotado"
        r"|apuntado)|añadido|excluid[oa]s?|sin [^\W\d_]+\.|máximo|como (?:base|tope)|nada de|solo|sólo"
        r"|confirmado|reservado|tenido en cuenta|gracias por (?:avisar|decirme|contarme))"
    ),
    changed=re.compile(
        r"\b(?:actualizad\w+|actualizo|cambi(?:o|ad\w+)|pas(?:o|amos|ado) a|movid\w+|muevo|subid\w+|subo"
        r"|bajad\w+|bajo a|ahora\b|en su lugar|correg\w+|corrijo|quitad\w+|quito|fuera\b|levantad\w+"
        r"|eliminad\w+|elimino|retirad\w+|retiro|tachad\w+|borrad\w+|anulad\w+|cancelad\w+|reprogramad\w+"
        r"|adelantad\w+|aplazad\w+|ampliad\w+|nuevo (?:límite|presupuesto|total|tope)|nueva (?:fecha|hora)"
        r"|ya no|entonces\.?$|sin problema|permitid\w+|libre)\b"
    ),
    removed=re.compile(
        r"\b(?:(?:quit|elimin|retir|tach|borr|anul|cancel|descart|olvid|levant)ad[oa]s?\b|(?:lo|la|los|las) (?:quito|elimino|retiro|tacho|borro|dejo fuera|descarto|olvido)|fuera\b|ya no\b|sin (?:eso|ello)|no hace falta|da igual|elijo yo|libre\b)"
    ),
    confirm_request=re.compile(
        r"\b(?:(?:solo )?para confirmar|confirmo|confirmas|me confirmas|entonces|así que|dijiste|dijo que"
        r"|me dijiste|querías|¿?correcto\?|¿?verdad\?|¿?cierto\?|¿?no\?|¿?vale\?|es así\?|te parece"
        r"|si he entendido|resumiendo|recapitul\w+|reservo|pongo|dejo|apunto|quieres que|¿lo)"
    ),
    confirmation=re.compile(
        r"^\W*(?:sí|si[,.]|exacto|correcto|eso(?: es)?\b|claro|efectivamente|así es|vale|de acuerdo|perfecto"
        r"|confirmo|confirmado|tal cual|por supuesto|ok|okay|me parece bien|adelante|afirmativo|cierto"
        r"|desde luego|justo)\b"
    ),
    denial=re.compile(r"^\W*(?:no|qué va|para nada|incorrecto|negativo)\b"),
    dismissed=re.compile(
        r"\b(?:cada (?:uno|cual|quien)|allá (?:él|ella|ellos)|no lo (?:tendré|tengo) en cuenta|no (?:nos|te"
        r"|le) afecta|bien por|pobre\b|vaya\b.{0,20}$|solo (?:tú|vosotros|ustedes)|no cuenta|no viene"
        r"|sigue (?:siendo|disponible)|entonces (?:no|sigue)|ojalá|algún día|soñar|cuando llegue|qué (?:gracia"
        r"|cosas|personaje)|jaja)"
    ),
    values=VALUES,
    figures=FIGURES,
    units=UNITS,
    number=number,
    words=WORDS,
)
